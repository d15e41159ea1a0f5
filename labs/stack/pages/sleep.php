<?php
/**
 * Waits without computing: ?ms=N milliseconds (20). A worker in it is busy for its pool and idle for the machine.
 */

$wait_ms = max(0, min(60000, (int) ($_GET['ms'] ?? 20)));
wait_for_nothing($wait_ms);
header('Content-Type: application/json');
echo json_encode(['page' => 'sleep', 'waited_ms' => $wait_ms]), "\n";

function wait_for_nothing(int $wait_ms): void
{
    usleep($wait_ms * 1000);
}
