<?php
// What `opcache.preload` names.
require_once __DIR__ . '/preloaded.php';
