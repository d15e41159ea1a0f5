<?php
// What the pages have in common. Each page prints last, as the only thing on its line, the nanoseconds that its drag took; two numbers
// where its clock can only say that it took as long at least, and at most.

/** CPU time of this process, nanoseconds. */
function cpu_ns(): int {
	$used = getrusage();
	return 1_000_000_000 * ($used['ru_utime.tv_sec'] + $used['ru_stime.tv_sec']) + 1_000 * ($used['ru_utime.tv_usec'] + $used['ru_stime.tv_usec']);
}

/** Computes for so much CPU time: the work that is the page's own. */
function compute(int $ns): string {
	$end = cpu_ns() + $ns;
	$text = '';
	do {
		for ($round = 0; $round < 20; $round++) {
			$text = hash('sha256', $text . $round);
		}
	} while (cpu_ns() < $end);
	return $text;
}

/** How long this takes, nanoseconds. */
function clock(callable $work): int {
	$begin = hrtime(true);
	$work();
	return hrtime(true) - $begin;
}

/** A connection to Redis that is made by this request. */
function new_redis(): Redis {
	$redis = new Redis();
	$redis->connect('127.0.0.1', (int) getenv('REDIS_PORT'));
	return $redis;
}

/** A connection to Redis that the worker keeps. */
function kept_redis(): Redis {
	$redis = new Redis();
	$redis->pconnect('127.0.0.1', (int) getenv('REDIS_PORT'));
	return $redis;
}

/**
 * A connection to the slow server that the worker keeps.
 *
 * @return resource
 */
function kept_slow() {
	$server = pfsockopen('127.0.0.1', (int) getenv('SLOW_PORT'));
	stream_set_read_buffer($server, 0);
	return $server;
}

/** Number of this request: what differs from one to the next. */
function request_number(): int {
	return (int) ($_GET['n'] ?? 0);
}
