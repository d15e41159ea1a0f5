// Calls `shop::Cart::total` from ever other depths, by plain calls, from a sort and through a function that is passed.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#define APART __attribute__((noinline))

namespace shop {
struct Cart {
	std::vector<int> prices;
	long total() const;
};
APART long Cart::total() const
{
	long sum = 0;
	for (int price : prices) {
		sum += price * 31 % 7;
	}
	return sum;
}
}

static long seen;

APART static long descend(int depth, const shop::Cart &cart)
{
	volatile char room[64];
	room[depth % 64] = depth;
	long below = depth ? descend(depth - 1, cart) : cart.total();
	return below ^ room[depth % 64];
}

APART static bool before(int a, int b, const shop::Cart &cart)
{
	seen += cart.total();
	return a < b;
}

APART static void sort(shop::Cart cart)
{
	std::sort(cart.prices.begin(), cart.prices.end(), [&](int a, int b) { return before(a, b, cart); });
}

APART static long pass(const std::function<long(int)> &to, int depth)
{
	return to(depth) + 1;
}

int main()
{
	shop::Cart cart;
	char line[16];
	for (int price = 4; price > 0; price--) {
		cart.prices.push_back(price);
	}
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin)) {
		return 1;
	}
	for (int turn = 0; turn < 40; turn++) {
		seen += descend(turn % 23, cart);
		seen += pass([&](int depth) { return descend(depth, cart); }, turn % 11);
		sort(cart);
	}
	puts("done");
	fflush(stdout);
	return fgets(line, sizeof line, stdin) && seen == 0;
}
