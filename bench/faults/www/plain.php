<?php
// Knows nothing of snapshots.
echo 'plain ', $_GET['v'] ?? '', ' ', isset($kernel) || class_exists('Kernel', false) ? 'leaked' : 'clean', ' end';
