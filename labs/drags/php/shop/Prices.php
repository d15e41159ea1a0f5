<?php
final class Prices {
	public function of(int $article, int $customer): float {
		$price = 1.0 + ($article * 7919 + $customer) % 1000;
		foreach ([100 => 0.95, 500 => 0.9, 900 => 0.8] as $from => $factor) {
			$price *= $price > $from ? $factor : 1.0;
		}
		return round($price * (1 + ($customer % 3) / 10), 2);
	}

	public function list(int $customer, int $articles): string {
		$lines = [];
		for ($article = 0; $article < $articles; $article++) {
			$lines[] = sprintf('%05d %8.2f', $article, $this->of($article, $customer));
		}
		sort($lines);
		return md5(implode("\n", $lines));
	}
}
