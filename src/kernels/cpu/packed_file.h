// Packed weights on disk, so that a second start maps what the first one packed. The file is a page of text that says
// what it was made of and by which version, then the tiles exactly as they lie in memory (layout.h; every instruction
// set uses the same), then a checksum of every MiB of them. A file that does not fit, for whatever reason, is never
// used: its reader knows the text that it must begin with and its size, and compares checksums: all of them up to a GiB
// of tiles (a second start stays well under a second), of larger files an even sample of as much, and all when asked.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/thread_team.h"
#include "cohort/error.h"

namespace cohort::cpu {

/// What to do with packed weights on disk.
struct PackedCache {
  enum class Mode : uint8_t {
    off,
    use,        // map the file; an error when it is missing or does not fit
    automatic,  // map the file when it fits, else pack and write it
    write,      // pack and write it
  };
  Mode mode = Mode::off;
  std::filesystem::path file;
  std::string source;       // source_identity() of the model
  bool verify_all = false;  // compare the checksums of a file of any size in full
};

/// Bumped when the text or the place of the tiles changes.
inline constexpr int kPackedFormat = 2;

/// Where the packed weights of a model are looked for when nobody says: beside it, FILE.packed or FOLDER/model.packed.
std::filesystem::path default_packed_file(const std::filesystem::path& model);

/// One line for every file of a model (a GGUF file, all parts of a split one, or what a folder holds): name, bytes,
/// time of change, and a hash of samples from all over it. Reads less than a MB of each. Errors name the file.
Expected<std::string> source_identity(const std::filesystem::path& model);

/// Tiles start at this multiple from the beginning of the file, so that huge pages can map them.
inline constexpr size_t kPackedAlignment = size_t{2} << 20;

/// The text of a file with `bytes` of tiles of these matrices (a line each) made from `source`.
std::string packed_header(const std::string& source, const std::string& matrices, size_t bytes);

/// Each piece of so many bytes of the tiles has a checksum, and so many bytes are compared at every start.
inline constexpr size_t kPackedPiece = size_t{1} << 20, kComparedAtStart = size_t{1} << 30;

/// Of 64 bits; a change within one aligned word of 8 bytes always changes it.
uint64_t checksum(std::span<const std::byte> bytes);

/// Writes header, tiles and checksums; the file appears when it is complete.
Expected<void> write_packed_file(const std::filesystem::path& path, const std::string& header,
                                 std::span<const std::byte> tiles);

/// The mapped file and where its tiles start. not_found: there is none; invalid_argument: it is something else;
/// corrupt: it does not begin with `header` or has another size, and the message says what differs.
struct MappedTiles {
  MappedFile file;
  size_t offset = 0, bytes = 0;
  std::span<const std::byte> tiles() const { return file.bytes().subspan(offset, bytes); }
};
Expected<MappedTiles> map_packed_file(const std::filesystem::path& path, const std::string& header, size_t bytes);

/// Compares the checksums of all pieces, or, unless `all`, of as many as kComparedAtStart allows, evenly spread.
/// corrupt, with the place of the first piece that differs.
Expected<void> compare_checksums(const std::filesystem::path& path, const MappedTiles& mapped, bool all,
                                 ThreadTeam& team);

}  // namespace cohort::cpu
