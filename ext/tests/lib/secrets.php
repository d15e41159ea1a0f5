<?php
/** Keeps a value of the request in all ways in which an application may have kept it. */
class Keeper
{
    public static $shared;
    public $value;
    private $hidden = [];

    public function hide($value): static
    {
        $this->hidden['user']['token'] = $value;
        return $this;
    }
}

function keep_in_function($value = null)
{
    static $kept;
    return $kept ??= $value;
}

/** @return array<string, mixed> the global variables to make */
function keep(string $how, string $value): array
{
    // A copy that shares no memory with the superglobal.
    $value = strrev(strrev($value));
    switch ($how) {
        case 'variable':
            return ['kept' => $value];
        case 'property':
            $keeper = new Keeper();
            $keeper->value = $value;
            return ['keeper' => $keeper];
        case 'private':
            return ['keeper' => (new Keeper())->hide($value)];
        case 'key':
            return ['map' => ['by value' => [$value => true]]];
        case 'closure':
            return ['closure' => fn () => $value];
        case 'closure_static':
            $closure = function ($new = null) {
                static $kept;
                return $kept ??= $new;
            };
            $closure($value);
            return ['closure' => $closure];
        case 'function_static':
            keep_in_function($value);
            return [];
        case 'class_static':
            Keeper::$shared = $value;
            return [];
        case 'longer':
            return ['log' => ["12:00 request with $value from somewhere"]];
        case 'huge':
            return ['text' => str_repeat('padding ', 500_000) . $value . str_repeat(' padding', 100)];
        case 'constant':
            define('KEPT', $value);
            return [];
        case 'generator':
            $generator = (function () use ($value) {
                yield 1;
                echo $value;
            })();
            $generator->current();
            return ['generator' => $generator];
        case 'ini':
            ini_set('user_agent', $value);
            return [];
        case 'environment':
            putenv("KEPT=$value");
            return [];
        case 'memory_stream':
            $stream = fopen('php://memory', 'w+');
            fwrite($stream, "a $value b");
            return ['stream' => $stream];
        case 'header':
            header("X-Kept: $value");
            return [];
        case 'server':
            $_SERVER['KEPT'] = $value;
            return [];
    }
}
