<?php
// What the worker has done so far. Is not restored itself.
echo json_encode(Slipstream\status() + ['pid' => getmypid(), 'opcache' => opcache_get_status(false)['opcache_statistics'] ?? null]);
