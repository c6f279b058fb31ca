// A small blocking HTTP client on a raw socket, so that tests can also misbehave.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::server {

struct Answer {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
  nlohmann::json json() const { return nlohmann::json::parse(body); }
};

class Client {
 public:
  explicit Client(uint16_t port, int receive_buffer = 0) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("cannot connect");
  }
  ~Client() { close(); }
  Client(Client&& other) noexcept : fd_(std::exchange(other.fd_, -1)), buffer_(std::move(other.buffer_)) {}
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Ends the sending side only.
  void finish_sending() { ::shutdown(fd_, SHUT_WR); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  /// Closes with a reset, as a machine that lost its power does when it is back.
  void reset() {
    const linger hard{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close();
  }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  bool post(std::string_view path, std::string_view body, std::string_view type = "application/json") {
    std::string head = "POST " + std::string(path) +
                       " HTTP/1.1\r\nHost: localhost\r\nContent-Type: " + std::string(type) +
                       "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n";
    return send(head + std::string(body));
  }
  bool get(std::string_view path, std::string_view headers = "") {
    return send("GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(headers) + "\r\n");
  }

  /// The next answer; status 0 when the connection ends before it is complete.
  Answer read() {
    Answer answer;
    const std::string head = read_until("\r\n\r\n");
    if (head.empty()) return answer;
    size_t line = head.find("\r\n") + 2;
    while (line < head.size() - 2) {
      const size_t end = head.find("\r\n", line);
      const size_t colon = head.find(':', line);
      std::string name = head.substr(line, colon - line);
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      answer.headers[name] = head.substr(colon + 2, end - colon - 2);
      line = end + 2;
    }
    const int status = std::atoi(head.c_str() + 9);
    if (answer.headers.contains("transfer-encoding")) {
      while (true) {
        const std::string size_line = read_until("\r\n");
        if (size_line.empty()) return answer;
        const size_t size = std::strtoul(size_line.c_str(), nullptr, 16);
        const std::string chunk = read_bytes(size + 2);
        if (chunk.size() < size + 2) return answer;
        if (size == 0) break;
        answer.body += chunk.substr(0, size);
      }
    } else if (answer.headers.contains("content-length")) {
      const size_t size = std::strtoul(answer.headers["content-length"].c_str(), nullptr, 10);
      answer.body = read_bytes(size);
      if (answer.body.size() < size) return answer;
    }
    answer.status = status;
    return answer;
  }
  std::string read_until(std::string_view end) {
    size_t found;
    while ((found = buffer_.find(end)) == std::string::npos) {
      if (!fill()) return {};
    }
    return take(found + end.size());
  }
  std::string read_bytes(size_t count) {
    while (buffer_.size() < count && fill()) {
    }
    return take(std::min(count, buffer_.size()));
  }
  /// True if the server closes the connection within `milliseconds`; what it sends before is dropped.
  bool closed_within(int milliseconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    while (std::chrono::steady_clock::now() < end) {
      pollfd poll{fd_, POLLIN, 0};
      if (::poll(&poll, 1, 50) <= 0) continue;
      char bytes[4096];
      if (::recv(fd_, bytes, sizeof bytes, 0) <= 0) return true;
    }
    return false;
  }

 private:
  bool fill() {
    pollfd poll{fd_, POLLIN, 0};
    if (::poll(&poll, 1, 300000) <= 0) return false;
    char bytes[16384];
    const ssize_t got = ::recv(fd_, bytes, sizeof bytes, 0);
    if (got <= 0) return false;
    buffer_.append(bytes, static_cast<size_t>(got));
    return true;
  }
  std::string take(size_t count) {
    std::string out = buffer_.substr(0, count);
    buffer_.erase(0, count);
    return out;
  }
  int fd_;
  std::string buffer_;
};

/// The data of server-sent events, in order.
inline std::vector<std::string> events_of(std::string_view body) {
  std::vector<std::string> out;
  while (!body.empty()) {
    const size_t end = body.find("\n\n");
    if (end == std::string_view::npos || !body.starts_with("data: ")) throw std::runtime_error("not an event stream");
    out.emplace_back(body.substr(6, end - 6));
    body.remove_prefix(end + 2);
  }
  return out;
}

}  // namespace cohort::server
