#include <cstdio>

int rows_stored();
int statements_parsed();

int main() {
  std::printf("mariadbd  Ver 1.2.3-MariaDB for Linux on x86_64 (ssl %s)\n", SSL_KIND);
  return rows_stored() + statements_parsed();
}
