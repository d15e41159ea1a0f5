<?php
// Writes what pages load: `classes/`, the services of an application, which `autoload.php` loads and builds, all in each request;
// `templates/`, files that are looked up; and `tables/`, which opcache has in memory. Written once: a file that was written again is a
// change for opcache.

const SERVICES = 300;
const TEMPLATES = 200;
const PRODUCTS = 4_096;

/** Nearly a page of memory for each product. */
const PRODUCT_BYTES = 4_000;

[, $folder] = $argv;

function write(string $path, string $text): void {
	if (!is_file($path) || file_get_contents($path) !== $text) {
		file_put_contents($path, $text);
	}
}

foreach (['classes', 'templates', 'tables'] as $name) {
	is_dir("$folder/$name") || mkdir("$folder/$name");
}
for ($number = 0; $number < SERVICES; $number++) {
	// A service knows two that were built before it, and prepares itself.
	$needs = $number === 0 ? '' : sprintf('public readonly ?Service%d $first = null, public readonly ?Service%d $second = null', $number - 1, intdiv($number, 2));
	$routes = implode("\n", array_map(fn (int $route): string => "\t\t\t'/area-$number/page-$route' => ['Controller$number', 'action$route', ['GET', 'HEAD']],", range(0, 59)));
	write("$folder/classes/Service$number.php", <<<PHP
		<?php
		final class Service$number {
			/** @var array<string, string> */
			private array \$patterns = [];

			public function __construct($needs) {
				foreach (self::routes() as \$path => [\$controller, \$action]) {
					\$this->patterns['#^' . preg_quote(\$path, '#') . '\$#'] = "\$controller::\$action";
				}
			}

			public function match(string \$path): ?string {
				foreach (\$this->patterns as \$pattern => \$action) {
					if (preg_match(\$pattern, \$path)) {
						return \$action;
					}
				}
				return null;
			}

			private static function routes(): array {
				return [
		$routes
				];
			}
		}

		PHP);
}
for ($number = 0; $number < TEMPLATES; $number++) {
	write("$folder/templates/block-$number.html", "<p>block $number</p>\n");
}
$products = array_map(fn (int $number): string => "\t'" . str_pad("product $number ", PRODUCT_BYTES, "text of $number ") . "',\n", range(0, PRODUCTS - 1));
write("$folder/tables/products.php", "<?php\nreturn [\n" . implode('', $products) . "];\n");
