<?php
// What the worker has done so far.
echo json_encode(Slipstream\status());
