<?php
// Slipstream\before_snapshot cleans up before the state is saved; Slipstream\on_restore fits it to the request.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    class Session
    {
        public ?string $query = null;
        public array $log = [];

        public function begin(): void
        {
            $this->query = $_GET['q'] ?? 'none';
            $this->log[] = 'begun by ' . $_SERVER['REQUEST_METHOD'];
        }

        public function forget(): void
        {
            $this->query = null;
            $this->log = ['cleaned'];
        }
    }
    $session = new Session();
    $session->begin();
    $order = [];
    Slipstream\before_snapshot([$session, 'forget']);
    Slipstream\before_snapshot(function () use (&$order) {
        $order[] = 'before';
    });
    Slipstream\on_restore([$session, 'begin']);
    Slipstream\on_restore($after = function () use (&$order, $session) {
        $order[] = "after $session->query";
    });
    snapshot_state();
    // What on_restore does in later requests.
    $session->begin();
    $after();
}

report(['query' => $session->query, 'log' => $session->log, 'order' => $order]);

Slipstream\on_restore(fn () => print "never: the request's own registrations are gone\n");
Slipstream\before_snapshot(fn () => print "never: there is no second snapshot\n");
wreck();
