<?php
// A boot that leaves a connection open, and requests that go on with it.

if (!restore_state()) {
    require __DIR__ . '/clients.php';
    require __DIR__ . '/states.php';
    $client = client($_SERVER['CLIENT'] ?? $_GET['client']);
    $booted = $client instanceof SmallMemcached ? $client->get('key') : $client->command('GET', 'user:7');
    if (isset($_GET['boot'])) {
        leave($client, $_GET['boot']);
    }
    try {
        snapshot_state();
    } catch (Slipstream\SnapshotException $refused) {
        $why = $refused->getMessage();
    }
}
$answer = ['pid' => getmypid(), 'restored' => Slipstream\status()['restored'], 'why' => $why ?? null, 'booted' => $booted];
try {
    switch ($_GET['do']) {
        case 'see':
            $answer += seen($client);
            break;
        case 'leave':
            leave($client, $_GET['how']);
            break;
        case 'die':
            // By a fatal error.
            leave($client, $_GET['how']);
            ini_set('memory_limit', '32M');
            str_repeat('x', 64 << 20);
            break;
        case 'nothing':
            break;
        case 'status':
            $answer['connections'] = Slipstream\status()['connections'];
            break;
    }
} catch (Throwable $error) {
    $answer['error'] = get_class($error) . ': ' . $error->getMessage();
}
header('Content-Type: application/json');
echo json_encode($answer);
