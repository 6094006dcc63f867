/* thread_team.h - the host team's protocol on its own (team.c). Each function ends the program with a sentence if it
 * fails. */
#ifndef RONDO_TESTS_THREADS_TEAM_H
#define RONDO_TESTS_THREADS_TEAM_H

void chunks_see_what_came_before_and_are_seen_behind(void);
void cells_are_used_again(void);

#endif
