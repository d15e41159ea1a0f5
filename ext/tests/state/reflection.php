<?php
// Reflection objects kept in variables.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    require __DIR__ . '/../fixtures/classes.inc';
    #[Attribute]
    class Route
    {
        public function __construct(public string $path, public array $methods = ['GET'])
        {
        }
    }
    class Controller
    {
        private int $uses = 1;
        protected static ?string $kept = 'kept';

        /** Documented. */
        #[Route('/home', methods: ['GET', 'POST'])]
        public function home(Shop\Priced|int|null $item = null, string ...$rest): ?string
        {
            return "home $this->uses" . implode($rest);
        }
    }
    $controller = new Controller();
    $class = new ReflectionClass($controller);
    $object = new ReflectionObject($controller);
    $method = $class->getMethod('home');
    $parameter = $method->getParameters()[0];
    $type = $parameter->getType();
    $attribute = $method->getAttributes()[0];
    $property = $class->getProperty('uses');
    $function = new ReflectionFunction('Shop\tax');
    $closure = new ReflectionFunction(fn (int $x = 5) => $x + 1);
    $enum = new ReflectionEnum(Shop\Suit::class);
    $case = $enum->getCase('Hearts');
    $constant = new ReflectionClassConstant(Shop\Book::class, 'KIND');
    $internal = new ReflectionMethod('ArrayObject', 'count');
    $named = new ReflectionNamedType_Holder($class->getProperty('kept')->getType());
    snapshot_state();
}

final class ReflectionNamedType_Holder
{
    public function __construct(public ReflectionType $type)
    {
    }
}

$property->setValue($controller, 5);
report([
    'class' => [$class->getName(), $class->hasMethod('home'), $class->newInstance()->home(), $object->getShortName(), count($class->getProperties())],
    'method' => [$method->invoke($controller, null, '!', '?'), $method->getDocComment(), $method->getNumberOfParameters(), (string) $method->getReturnType()],
    'parameter' => [$parameter->getName(), $parameter->isOptional(), (string) $type, array_map('strval', $type->getTypes()), $parameter->getPosition()],
    'attribute' => [$attribute->getName(), $attribute->getArguments(), $attribute->newInstance()],
    'property' => [$property->getValue($controller), (string) $property->getType(), $class->getStaticPropertyValue('kept')],
    'functions' => [$function->invoke(100), $function->getNumberOfParameters(), $closure->invoke(), $closure->getParameters()[0]->getDefaultValue()],
    'enum' => [$enum->getBackingType()->getName(), $case->getValue(), $case->getBackingValue(), count($enum->getCases()), $constant->getValue()],
    'internal' => [$internal->invoke(new ArrayObject([1, 2]))],
    'named' => [$named->type->getName(), $named->type->allowsNull()],
]);

$property->setValue($controller, 100);
$class->setStaticPropertyValue('kept', 'wrecked');
wreck();
