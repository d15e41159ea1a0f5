<?php
// DateTime, DateTimeImmutable, DateTimeZone, DateInterval and DatePeriod.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    class Moment extends DateTimeImmutable
    {
        public string $label = 'a moment';
    }
    $date = new DateTime('2024-02-29 12:34:56.789', new DateTimeZone('Europe/Paris'));
    $immutable = new DateTimeImmutable('2020-01-01T00:00:00+05:30');
    $abbreviated = new DateTimeImmutable('2020-07-01 00:00:00 EDT');
    $moment = new Moment('@86400');
    $zone = new DateTimeZone('America/New_York');
    $offset = new DateTimeZone('-03:00');
    $interval = new DateInterval('P1Y2M3DT4H5M6S');
    $interval->f = 0.25;
    $difference = $immutable->diff($date);
    $relative = DateInterval::createFromDateString('last day of next month');
    $period = new DatePeriod(new DateTime('2024-01-30', $zone), new DateInterval('P1D'), 3, DatePeriod::EXCLUDE_START_DATE);
    $ended = new DatePeriod($immutable, new DateInterval('PT12H'), $immutable->modify('+1 day'));
    $transitions = $zone->getTransitions(1700000000, 1720000000);
    snapshot_state();
}

$moved = (clone $date)->add($interval);
report([
    'date' => [$date->format('Y-m-d\TH:i:s.u P e T I L'), $date->getTimestamp(), $moved->format(DATE_ATOM)],
    'immutable' => [$immutable->format('c e'), $abbreviated->format('c e T'), $immutable->setTimezone($zone)->format('c T')],
    'moment' => [$moment->format('c'), $moment->label, $moment->modify('+1 month')::class],
    'zones' => [$zone->getName(), $offset->getName(), $zone->getOffset($date), $zone->getLocation()['country_code'], count($transitions)],
    'interval' => [$interval->format('%y %m %d %h %i %s %F %R'), $difference->days, $difference->format('%R%a %h'), $relative->from_string ?? null],
    'period' => array_map(fn ($day) => $day->format('D Y-m-d e'), iterator_to_array($period, false)),
    'ended' => [count(iterator_to_array($ended)), $ended->getEndDate()->format('c'), $ended->recurrences],
    'compared' => [$date > $immutable, $immutable == new DateTime('2019-12-31 18:30 UTC')],
    'serialized' => [unserialize(serialize($date)) == $date, json_encode($offset), var_export($zone, true)],
    'new' => (new DateTime('2024-07-01', $zone))->format('c T'),
]);

$date->modify('+10 years')->setTimezone(new DateTimeZone('Asia/Tokyo'));
$interval->y = 99;
$interval->invert = 1;
$moment->label = 'wrecked';
