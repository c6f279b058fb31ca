#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "base/test_disk_full.h"
#include "base/test_folder.h"

namespace cohort {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(AtomicFileWriter, ShowsTheFileOnlyAfterCommit) {
  TestFolder folder;
  auto path = folder / "out.bin";
  auto writer = AtomicFileWriter::create(path);
  ASSERT_TRUE(writer.has_value()) << writer.error().message;
  ASSERT_TRUE(writer->write(bytes_of("abc")).has_value());
  ASSERT_TRUE(writer->pad_to(8).has_value());
  EXPECT_EQ(writer->position(), 8u);
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(writer->commit().has_value());
  EXPECT_EQ(*read_text_file(path), std::string("abc\0\0\0\0\0", 8));
  EXPECT_EQ(folder.files(), 1u);
}

TEST(AtomicFileWriter, ReplacesAnExistingFile) {
  TestFolder folder;
  auto path = folder.write("out.bin", "old and longer");
  auto writer = AtomicFileWriter::create(path);
  ASSERT_TRUE(writer.has_value());
  ASSERT_TRUE(writer->write(bytes_of("new")).has_value());
  EXPECT_EQ(*read_text_file(path), "old and longer");
  ASSERT_TRUE(writer->commit().has_value());
  EXPECT_EQ(*read_text_file(path), "new");
  EXPECT_EQ(folder.files(), 1u);
}

TEST(AtomicFileWriter, LeavesNothingWithoutCommit) {
  TestFolder folder;
  {
    auto writer = AtomicFileWriter::create(folder / "out.bin");
    ASSERT_TRUE(writer.has_value());
    ASSERT_TRUE(writer->write(bytes_of(std::string(size_t{6} << 20, 'x'))).has_value());
  }
  EXPECT_EQ(folder.files(), 0u);
}

TEST(AtomicFileWriter, LeavesNothingOnAFullDiskAndKeepsTheOldFile) {
  TestFolder folder;
  auto path = folder.write("out.bin", "old");
  {
    FileSizeLimit limit(1 << 20);
    auto writer = AtomicFileWriter::create(path);
    ASSERT_TRUE(writer.has_value());
    auto wrote = writer->write(bytes_of(std::string(size_t{6} << 20, 'x')));
    ASSERT_FALSE(wrote.has_value());
    EXPECT_EQ(wrote.error().code, ErrorCode::io);
    EXPECT_NE(wrote.error().message.find("out.bin' after 1048576 bytes"), std::string::npos) << wrote.error().message;
  }
  EXPECT_EQ(folder.files(), 1u);
  EXPECT_EQ(*read_text_file(path), "old");
}

TEST(AtomicFileWriter, LeavesNothingWhenTheProcessIsKilled) {
  TestFolder folder;
  int nameless = ::open(folder.path().c_str(), O_WRONLY | O_TMPFILE, 0600);
  if (nameless < 0) GTEST_SKIP() << "this file system has no nameless files";
  ::close(nameless);
  pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto writer = AtomicFileWriter::create(folder / "out.bin");
    if (writer && writer->write(bytes_of(std::string(size_t{6} << 20, 'x')))) ::raise(SIGKILL);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_EQ(folder.files(), 0u);
}

TEST(AtomicFileWriter, NamesAFolderThatDoesNotExist) {
  TestFolder folder;
  auto writer = AtomicFileWriter::create(folder / "missing/out.bin");
  ASSERT_FALSE(writer.has_value());
  EXPECT_EQ(writer.error().code, ErrorCode::not_found);
  EXPECT_NE(writer.error().message.find("missing/out.bin"), std::string::npos);
}

TEST(MappedFile, RefusesFoldersAndMissingFiles) {
  TestFolder folder;
  EXPECT_EQ(MappedFile::open(folder.path()).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(MappedFile::open(folder / "none").error().code, ErrorCode::not_found);
  auto empty = MappedFile::open(folder.write("empty", ""));
  ASSERT_TRUE(empty.has_value());
  EXPECT_TRUE(empty->bytes().empty());
}

TEST(ReadTextFile, HasALimit) {
  TestFolder folder;
  auto path = folder.write("text", "12345");
  EXPECT_EQ(*read_text_file(path, 5), "12345");
  EXPECT_FALSE(read_text_file(path, 4).has_value());
}

TEST(ReadTextStream, ReadsPipesAndFilesToTheirEnd) {
  TestFolder folder;
  const std::string long_text(200000, 'x');
  EXPECT_EQ(*read_text_stream(folder.write("text", long_text), 200000), long_text);
  EXPECT_EQ(*read_text_stream(folder.write("empty", ""), 0), "");
  EXPECT_EQ(read_text_stream(folder.write("text", long_text), 199999).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(read_text_stream(folder / "none", 10).error().code, ErrorCode::not_found);
  EXPECT_EQ(read_text_stream(folder.path(), 10).error().code, ErrorCode::io);
  EXPECT_EQ(read_text_stream("/dev/zero", 100000).error().code, ErrorCode::invalid_argument);
  const auto pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << long_text; });
  EXPECT_EQ(*read_text_stream(pipe, 200000), long_text);
  writer.join();
}

}  // namespace
}  // namespace cohort
