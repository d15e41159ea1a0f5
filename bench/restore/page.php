<?php

// An image of a given size of which each request writes the same pages: BENCH_IMAGE_KIB and BENCH_PAGES in the environment.

if (!restore_state()) {
    ini_set('memory_limit', '256M');
    // A string of this length takes a page of its own.
    $page = str_repeat('p', 4000);
    $written = $idle = [];
    for ($i = 0; $i < (int) getenv('BENCH_PAGES'); $i++) {
        $written[] = strrev($page);
    }
    while (memory_get_usage() < 1024 * (int) getenv('BENCH_IMAGE_KIB')) {
        $idle[] = strrev($page);
    }
    snapshot_state();
}
for ($i = 0, $count = count($written); $i < $count; $i++) {
    $written[$i][7] = 'w';
}
$status = Slipstream\status();
echo json_encode([
    'restored' => $status['restored'],
    'mechanism' => $status['mechanism'],
    'dirty' => $status['dirty_pages']['last'],
    'restore_ns' => $status['restore_ns']['last'],
    'image_pages' => $status['image']['pages'] ?? 0,
]);
