<?php
// Closures and casts in constant expressions, and other syntax of PHP 8.5.
// needs: php>=8.5
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    #[Attribute]
    class Check
    {
        public function __construct(public Closure $check)
        {
        }
    }
    class Price
    {
        public const ROUND = static function (float $value): int {
            static $calls = 0;
            return (int) round($value) + 100 * $calls++;
        };
        public const SHORTER = static function (string $text): string { return substr($text, 1); };
        public const NAME = strtoupper(...);
        public const WHOLE = (int) '12 pieces';
        public static private(set) array $made = [];
        public Closure $format = self::NAME;

        public function __construct(final public readonly float $value, public readonly string $currency = 'eur')
        {
            self::$made[] = $value;
        }

        public function in(string $currency): static
        {
            return clone($this, ['currency' => $currency]);
        }

        public function rounded(Closure $round = self::ROUND): int
        {
            return $round($this->value);
        }

        #[NoDiscard('the price is new')]
        public function doubled(): static
        {
            return new static($this->value * 2, $this->currency);
        }

        #[Check(static function (float $value): bool { return $value > 1; })]
        public function checked(): void
        {
        }
    }
    $price = new Price(2.6);
    $rounded = $price->rounded();
    $dollars = $price->in('usd');
    $kept = Price::ROUND;
    $attribute = (new ReflectionMethod(Price::class, 'checked'))->getAttributes()[0];
    snapshot_state();
}

report([
    'closures' => [$price->rounded(), $kept(7.4), (Price::ROUND)(1.2), ($price->format)('name'), Price::WHOLE],
    'clones' => [$dollars->currency, $dollars->in('gbp')->currency, $dollars->rounded(), $price->currency],
    'attribute' => [($attribute->newInstance()->check)(1.5), ($attribute->newInstance()->check)(0.5)],
    'pipes' => [' piped ' |> trim(...) |> Price::SHORTER |> Price::NAME, [3, 4] |> array_last(...), array_first(Price::$made)],
    'refused' => [thrown(fn () => Price::$made = []), thrown(fn () => $price->value = 1.0), thrown(fn () => clone($price, ['value' => 2]))],
    'made' => [$price->doubled()->value, Price::$made],
]);

$dollars = $price->in('wrecked');
(void) $price->doubled();
