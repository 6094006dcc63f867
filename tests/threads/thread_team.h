/* thread_team.h - the host team's protocol on its own (team.c). Each function ends the program with a sentence if it
 * fails. */
#pragma once

void chunks_see_what_came_before_and_are_seen_behind(void);
void cells_are_used_again(void);
