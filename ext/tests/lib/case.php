<?php
/** What the applications under test share. They load it while they boot, so it is part of the saved state itself. */

/**
 * Prints what was observed, and with it what PHP knows of the request. The last line is for the runner, which takes it out.
 *
 * @param array<string, mixed> $observed
 */
function report(array $observed): void
{
    $observed['request'] = observe_request();
    $flags = JSON_PRETTY_PRINT | JSON_UNESCAPED_SLASHES | JSON_PRESERVE_ZERO_FRACTION | JSON_INVALID_UTF8_SUBSTITUTE;
    echo json_encode($observed, $flags | JSON_THROW_ON_ERROR), "\n";
    report_status();
}

/** Says whether this request was restored, and by which worker. */
function report_status(): void
{
    echo "\n#status ", json_encode(Slipstream\status() + ['pid' => getmypid()]), "\n";
}

/** @return array<string, mixed> */
function observe_request(): array
{
    $files = [];
    foreach ($_FILES as $name => $file) {
        $files[$name] = [
            $file['name'], $file['type'], $file['size'], $file['error'], is_uploaded_file($file['tmp_name']),
            file_get_contents($file['tmp_name']),
        ];
    }
    return [
        'method' => $_SERVER['REQUEST_METHOD'], 'uri' => $_SERVER['REQUEST_URI'], 'query' => $_SERVER['QUERY_STRING'] ?? null,
        'trace' => $_SERVER['HTTP_X_TRACE'] ?? null, 'get' => $_GET, 'post' => $_POST, 'cookie' => $_COOKIE,
        'request' => $_REQUEST, 'files' => $files, 'body' => file_get_contents('php://input'),
        'age' => abs(time() - $_SERVER['REQUEST_TIME']) < 60,
    ];
}

/** A short name for a large string. */
function digest(string $text): string
{
    return strlen($text) . ':' . md5($text);
}

/** What calling $code throws: its class and message. */
function thrown(callable $code): string
{
    try {
        $code();
        return 'nothing';
    } catch (Throwable $error) {
        return $error::class . ': ' . $error->getMessage();
    }
}

/** A folder that belongs to this worker alone. */
function scratch(string $name): string
{
    return sys_get_temp_dir() . "/$name";
}

/** How deep `wreck` follows arrays and objects. */
const WRECK_DEPTH = 12;

/**
 * Changes every variable of the main script, and everything reached from there, in place: what a request leaves behind
 * must not be seen by the next one. Called after the report.
 */
function wreck(): void
{
    $seen = new SplObjectStorage();
    foreach (array_keys($GLOBALS) as $name) {
        if ($name === 'GLOBALS' || ($name[0] ?? '') === '_') {
            continue;
        }
        wreck_value($GLOBALS[$name], $seen, 0);
        $GLOBALS["leaked_$name"] = "by $name";
    }
}

function wreck_value(mixed &$value, SplObjectStorage $seen, int $depth): void
{
    if ($depth > WRECK_DEPTH) {
        return;
    }
    try {
        if (is_array($value)) {
            foreach (array_keys($value) as $key) {
                wreck_value($value[$key], $seen, $depth + 1);
            }
            $value['wrecked'] = true;
            $value[] = 'wrecked';
        } elseif (is_object($value)) {
            wreck_object($value, $seen, $depth);
        } elseif (is_string($value) && $value !== '') {
            // In place where nobody shares the string.
            $value[0] = '!';
        } elseif (is_int($value)) {
            $value = $value === PHP_INT_MAX ? 0 : $value + 1;
        } elseif (is_float($value)) {
            $value += 0.5;
        } elseif (is_bool($value)) {
            $value = !$value;
        } elseif ($value === null) {
            $value = 'wrecked';
        }
    } catch (Error) {
        // A typed reference or a readonly property: PHP itself keeps it as it is.
    }
}

function wreck_object(object $object, SplObjectStorage $seen, int $depth): void
{
    if ($seen->offsetExists($object) || $object instanceof UnitEnum || $object instanceof Closure || $object instanceof Generator) {
        return;
    }
    $seen->offsetSet($object);
    $class = new ReflectionObject($object);
    do {
        if ($class->isInternal()) {
            break;
        }
        (function () use ($seen, $depth): void {
            foreach (array_keys(get_object_vars($this)) as $name) {
                try {
                    wreck_value($this->$name, $seen, $depth + 1);
                } catch (Error) {
                    // Readonly.
                }
            }
        })->bindTo($object, $class->getName())();
    } while ($class = $class->getParentClass());
    if ($object instanceof stdClass) {
        $object->wrecked = true;
    }
}
