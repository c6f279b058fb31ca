// Numbers of nine bits for the 256 entries of the grid of IQ2_XXS, which take less work to look up than the file's.
//
// A group of eight values is four pairs. One permutation of 64 bytes looks up what depends on six bits, two what
// depends on seven: so entries are numbered such that the codes of pair 0 and of pair 1 follow from six bits of the
// number each, and those of pairs 2 and 3 from seven. That 512 numbers can be had for 256 entries is due to the signs,
// of which the file has seven for eight values. The numbers and the pairs were found by simulated annealing over the
// tables of pair 0, pair 1 and the upper half: a step changes one of their 256 codes and is judged by how many entries
// of the grid have a number.
#pragma once

#include <cstdint>

namespace cohort::cpu {

inline constexpr int kEntryNumbers = 512;  // that there can be
/// Where bit 8 of a number is in the byte of signs: in the place of the sign of the first value of pair 2.
inline constexpr int kNinthBit = 2;
inline constexpr uint32_t kNinthBits = 0x01010101U << kNinthBit;

/// The values of a pair.
inline constexpr int kPairValues[4][2] = {{3, 6}, {4, 5}, {0, 1}, {2, 7}};
/// Value kPairValues[i / 2][i % 2] is at i.
constexpr int pair_place(int value) {
  constexpr int kPlace[8] = {4, 5, 6, 0, 2, 3, 1, 7};
  return kPlace[value];
}

/// The bits of a number that the codes of pair 0 or 1 depend on: 0 to 5, or 0 to 4 and 6.
constexpr int pair_index(int pair, int number) {
  return pair == 0 ? number & 63 : (number & 31) | (number >> 6 & 1) << 5;
}
/// Those for pairs 2 and 3: 0, 1, 3, 4, 5, 7 and 8, with bit 8 in the place of bit 2 and bit 7 as bit 6.
constexpr int half_index(int number) {
  return (number & 0x3b) | (number >> 8 & 1) << kNinthBit | (number >> 7 & 1) << 6;
}

/// By the file's number.
inline constexpr uint16_t kEntryNumber[256] = {
    388, 34,  502, 162, 3,   118, 374, 290, 115, 158, 62,  137, 265, 393, 36,  163, 9,   83,  465, 7,   263, 97,
    376, 16,  225, 384, 155, 32,  338, 210, 323, 401, 184, 312, 45,  93,  440, 399, 38,  166, 294, 141, 269, 170,
    13,  23,  98,  226, 354, 156, 28,  19,  403, 239, 80,  463, 333, 77,  452, 438, 196, 310, 222, 201, 329, 457,
    228, 347, 285, 448, 146, 18,  441, 185, 174, 167, 69,  325, 223, 41,  229, 48,  304, 74,  300, 44,  65,  204,
    498, 459, 394, 10,  266, 235, 134, 90,  55,  112, 240, 505, 249, 238, 5,   37,  395, 139, 257, 50,  130, 405,
    255, 281, 25,  342, 214, 88,  372, 447, 469, 509, 253, 20,  52,  180, 194, 188, 444, 296, 462, 78,  22,  380,
    131, 318, 246, 4,   260, 371, 113, 291, 497, 35,  135, 81,  391, 353, 120, 256, 27,  288, 195, 451, 355, 433,
    305, 431, 173, 56,  42,  426, 151, 307, 464, 350, 382, 182, 123, 356, 289, 64,  320, 480, 348, 455, 46,  295,
    57,  430, 39,  95,  169, 396, 428, 449, 415, 262, 6,   474, 282, 264, 110, 121, 494, 389, 427, 359, 21,  258,
    53,  309, 468, 500, 213, 245, 404, 280, 322, 66,  378, 217, 499, 446, 190, 486, 337, 481, 272, 315, 466, 429,
    303, 477, 47,  15,  271, 435, 412, 275, 208, 79,  335, 510, 417, 402, 313, 302, 423, 197, 297, 12,  193, 236,
    75,  138, 363, 183, 489, 267, 277, 409, 232, 212, 319, 276, 473, 317,
};

}  // namespace cohort::cpu
