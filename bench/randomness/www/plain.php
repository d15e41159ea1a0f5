<?php
// The same without snapshots.
require __DIR__ . '/draws.php';
boot();
echo json_encode(draw());
