<?php
// Cannot be compiled.
function broken( {
