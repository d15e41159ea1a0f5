<?php
// What a page does on a connection of its own.
require __DIR__ . '/clients.php';
require __DIR__ . '/states.php';

/** The same key of either server. */
function ask(object $client): mixed
{
    return $client instanceof SmallMemcached ? $client->get('key') : $client->command('GET', 'key');
}

$answer = ['pid' => getmypid()];
try {
    switch ($_GET['do']) {
        case 'see':
            $answer += seen(client($_GET['client'], $_GET['tls'] ?? ''));
            break;
        case 'user':
            $answer['value'] = client($_GET['client'])->command('GET', "user:{$_GET['number']}");
            break;
        case 'leave':
            $client = client($_GET['client'], $_GET['tls'] ?? '');
            leave($client, $_GET['how']);
            break;
        case 'commands':
            // A new connection for each of so many.
            for ($number = 0; $number < (int) $_GET['number']; $number++) {
                $answer['value'] = ask(client($_GET['client']));
            }
            break;
        case 'gets':
            // One connection for so many; how long they take once it is there, and so many were asked for before.
            $client = client($_GET['client']);
            for ($number = 0; $number < (int) ($_GET['before'] ?? 0); $number++) {
                ask($client);
            }
            $begin = hrtime(true);
            for ($number = 0; $number < (int) $_GET['number']; $number++) {
                $answer['value'] = ask($client);
            }
            $answer['gets_ns'] = hrtime(true) - $begin;
            break;
        case 'status':
            $answer['connections'] = Slipstream\status()['connections'];
            break;
        case 'errors':
            // Of the library, which nobody but its user is to find.
            $answer['error'] = openssl_error_string() ?: 'none';
            break;
    }
} catch (Throwable $error) {
    $answer['error'] = get_class($error) . ': ' . $error->getMessage();
}
unset($client);
header('Content-Type: application/json');
echo json_encode($answer);
