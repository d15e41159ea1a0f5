<?php
// Declarations that depend on the way: conditional ones, those inside functions, eval'd and anonymous classes, aliases,
// constants of all kinds.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    define('SCALAR', 1.5);
    require __DIR__ . '/../fixtures/declarations.inc';
    declares_more();
    declared_inside();
    DeclaredInside::$count = 5;
    eval('final class Evaluated extends Chosen { public static $seen = ["boot"]; const LIST = [self::WAY, PHP_INT_SIZE]; }
        function evaluated() { static $n = 10; return $n++; } const EVALUATED = "e";');
    evaluated();
    $anonymous = make_anonymous(7);
    $other = new class extends Chosen {
        public $where = 'main';
    };
    class_alias('Evaluated', 'Some\Alias');
    define('LISTED', ['x' => ['y' => 'z'], 5 => null]);
    define('OBJECT', new ArrayObject(['of constant']));
    define('a\b\NAMED', "with \0 inside");
    for ($i = 0; $i < 50; $i++) {
        eval("class Many$i { const N = $i; public static \$s = [$i]; static function m() { static \$v = $i; return \$v++; } }");
        ("Many$i")::m();
    }
    snapshot_state();
}

$again = make_anonymous(8);
$many = 0;
for ($i = 0; $i < 50; $i++) {
    $many += ("Many$i")::N + ("Many$i")::$s[0] + ("Many$i")::m();
}
report([
    'chosen' => [Chosen::WAY, chosen()],
    'inside' => [declared_inside(), DeclaredInside::$count],
    'twice' => thrown(fn () => Evaluated::$seen[] = 'request'),
    'evaluated' => [Evaluated::$seen, Evaluated::LIST, evaluated(), EVALUATED, Some\Alias::WAY, new Some\Alias instanceof Evaluated],
    'anonymous' => [$anonymous, $again, $anonymous::class === $again::class, $other->where, $other::WAY, clone $other == $other],
    'constants' => [SCALAR, LISTED, OBJECT->getArrayCopy(), constant('a\b\NAMED'), TOP, defined('LATER'), define('SCALAR_2', 1)],
    'redefine' => thrown(fn () => @define('SCALAR', 2) ? throw new Exception('redefined') : null),
    'functions' => count(preg_grep('/^(chosen|declare|evaluated|make_anonymous)/', get_defined_functions()['user'])),
    'many' => $many,
]);

wreck();
DeclaredInside::$count = 'wrecked';
Evaluated::$seen = null;
OBJECT->append('wrecked');
define('LATER', 1);
for ($i = 0; $i < 50; $i++) {
    ("Many$i")::$s = ['wrecked'];
}
eval('class Many50 {} function later() {}');
