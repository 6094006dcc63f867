/* test_qr_tile_shapes.h - the shapes of the tests of register tiles. */
#pragma once

#include "../oracles/qr_factorisation.h"

enum { TILES = 12, BOTH_TYPES = 2 * TILES };
static const int16_t tiles[TILES][2] = {{8, 8},    {16, 16},  {32, 32},   {64, 64},  {128, 128}, {128, 16},
                                        {256, 16}, {512, 32}, {1024, 32}, {128, 32}, {256, 32},  {96, 96}};

/* Shapes between the tiles stand somewhere on a tile's diagonal; wide ones have no reflectors for their last columns.
 */
static const int16_t partly[][2] = {{1, 1},    {5, 3},     {3, 7},    {8, 4},    {12, 11},   {9, 16},   {16, 12},
                                    {27, 20},  {20, 30},   {28, 28},  {31, 1},   {50, 45},   {33, 60},  {60, 60},
                                    {36, 36},  {100, 90},  {70, 128}, {96, 96},  {120, 30},  {2, 100},  {90, 10},
                                    {65, 1},   {124, 12},  {100, 28}, {66, 90},  {95, 73},   {68, 68},  {240, 20},
                                    {196, 32}, {200, 7},   {252, 16}, {130, 3},  {400, 20},  {300, 32}, {512, 18},
                                    {700, 9},  {1000, 17}, {520, 32}, {1024, 5}, {1020, 31}, {900, 16}};
enum { PARTLY = sizeof partly / sizeof partly[0] };
