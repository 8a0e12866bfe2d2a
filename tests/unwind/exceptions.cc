/* exceptions.cc - threads that allocate, throw through some frames and catch: exceptions [ROUNDS]. Knows nothing of the sampler that is preloaded. */
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

__attribute__((noinline)) static int descend(int n, int throw_at) {
	std::string text(20 + (size_t)n, 'x');
	if (n == throw_at) throw std::runtime_error(text);
	return n ? descend(n - 1, throw_at) + (int)text.size() : 0;
}

static void work(int rounds) {
	std::vector<std::unique_ptr<int>> kept;
	for (int i = 0; i < rounds; i++) {
		try {
			kept.push_back(std::make_unique<int>(descend(25, i % 40)));
		} catch (const std::runtime_error &error) {
			kept.push_back(std::make_unique<int>((int)std::string(error.what()).size()));
		}
	}
}

int main(int argc, char **argv) {
	int rounds = argc > 1 ? atoi(argv[1]) : 300;
	std::vector<std::thread> threads;
	for (int i = 0; i < 4; i++) threads.emplace_back(work, rounds);
	for (std::thread &thread : threads) thread.join();
}
