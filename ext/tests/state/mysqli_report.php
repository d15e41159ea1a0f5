<?php
// mysqli_report: a setting of the whole request.
// needs: mysqli
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    mysqli_report(MYSQLI_REPORT_OFF);
    snapshot_state();
}

$link = mysqli_init();
// Nobody listens on this path. With the default setting this would throw.
$outcome = thrown(fn () => @$link->real_connect('localhost', 'nobody', '', '', 0, scratch('no.socket')));
report(['outcome' => $outcome, 'mode' => (new mysqli_driver())->report_mode]);

mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
