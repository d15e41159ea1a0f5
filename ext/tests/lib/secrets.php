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
        case 'var':
            return ['kept' => $value];
        case 'prp':
            $keeper = new Keeper();
            $keeper->value = $value;
            return ['keeper' => $keeper];
        case 'prv':
            return ['keeper' => (new Keeper())->hide($value)];
        case 'key':
            return ['map' => ['by value' => [$value => true]]];
        case 'clo':
            return ['closure' => fn () => $value];
        case 'cst':
            $closure = function ($new = null) {
                static $kept;
                return $kept ??= $new;
            };
            $closure($value);
            return ['closure' => $closure];
        case 'fst':
            keep_in_function($value);
            return [];
        case 'sta':
            Keeper::$shared = $value;
            return [];
        case 'lng':
            return ['log' => ["12:00 request with $value from somewhere"]];
        case 'big':
            return ['text' => str_repeat('padding ', 500_000) . $value . str_repeat(' padding', 100)];
        case 'con':
            define('KEPT', $value);
            return [];
        case 'gen':
            $generator = (function () use ($value) {
                yield 1;
                echo $value;
            })();
            $generator->current();
            return ['generator' => $generator];
        case 'ini':
            ini_set('user_agent', $value);
            return [];
        case 'env':
            putenv("KEPT=$value");
            return [];
        case 'mem':
            $stream = fopen('php://memory', 'w+');
            fwrite($stream, "a $value b");
            return ['stream' => $stream];
        case 'hdr':
            header("X-Kept: $value");
            return [];
        case 'srv':
            $_SERVER['KEPT'] = $value;
            return [];
    }
}
