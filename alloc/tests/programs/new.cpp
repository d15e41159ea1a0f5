// All forms of new and delete: aligned as asked, and failing as the language says.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#define CHECK(condition)                                                                                                   \
	do {                                                                                                               \
		if (!(condition)) {                                                                                        \
			std::fprintf(stderr, "%d: %s\n", __LINE__, #condition);                                            \
			std::exit(1);                                                                                      \
		}                                                                                                          \
	} while (0)

struct alignas(256) Wide {
	char bytes[300];
};

static int handler_calls;

static void handler()
{
	if (++handler_calls == 3) {
		std::set_new_handler(nullptr);
	}
}

int main()
{
	for (std::size_t bytes : {std::size_t(0), std::size_t(1), std::size_t(40), std::size_t(5000), std::size_t(100000), std::size_t(5000000)}) {
		void *block = ::operator new(bytes);
		std::memset(block, 1, bytes);
		::operator delete(block);
		::operator delete(::operator new(bytes), bytes);
		::operator delete[](::operator new[](bytes));
		::operator delete[](::operator new[](bytes), bytes);
		::operator delete(::operator new(bytes, std::nothrow), std::nothrow);
		::operator delete[](::operator new[](bytes, std::nothrow), std::nothrow);
		for (std::size_t alignment = 8; alignment <= 65536; alignment *= 2) {
			void *aligned = ::operator new(bytes, std::align_val_t(alignment));
			CHECK(reinterpret_cast<std::uintptr_t>(aligned) % alignment == 0);
			::operator delete(aligned, std::align_val_t(alignment));
			::operator delete(::operator new(bytes, std::align_val_t(alignment)), bytes, std::align_val_t(alignment));
			::operator delete[](::operator new[](bytes, std::align_val_t(alignment)), std::align_val_t(alignment));
			::operator delete[](::operator new[](bytes, std::align_val_t(alignment), std::nothrow), std::align_val_t(alignment), std::nothrow);
		}
	}
	delete new Wide;
	delete[] new Wide[3];

	volatile std::size_t too_much = std::size_t(1) << 60;
	CHECK(::operator new(too_much, std::nothrow) == nullptr);
	CHECK(::operator new(too_much, std::align_val_t(64), std::nothrow) == nullptr);
	bool thrown = false;
	std::set_new_handler(handler);
	try {
		::operator delete(::operator new(too_much));
	} catch (const std::bad_alloc &) {
		thrown = true;
	}
	CHECK(thrown && handler_calls == 3);

	std::map<std::string, std::vector<int>> map;
	std::vector<std::thread> threads;
	for (int number = 0; number < 2000; number++) {
		map["key " + std::to_string(number)].assign(static_cast<std::size_t>(number % 50), number);
	}
	for (int number = 0; number < 8; number++) {
		threads.emplace_back([&map] {
			std::map<std::string, std::vector<int>> copy = map;
			std::regex pattern("key ([0-9]+)");
			std::smatch match;
			for (int at = 0; at < 50; at++) {
				std::string key = "key " + std::to_string(at);
				CHECK(std::regex_match(key, match, pattern));
			}
			CHECK(copy == map);
		});
	}
	for (std::thread &thread : threads) {
		thread.join();
	}
	return 0;
}
