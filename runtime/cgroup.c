/* cgroup.c - see cgroup.h. Two files of proc(5) give the folder of a group: /proc/self/cgroup has its path in the
 * hierarchy, and /proc/self/mountinfo has the part of the hierarchy that is mounted, and its mount point. */
#include "cgroup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Is the word one of a list with commas? */
static bool is_in_list(const char *list, const char *word) {
  size_t length = strlen(word);
  for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    if (!strncmp(at, word, length) && (at[length] == ',' || at[length] == '\0')) return true;
  return false;
}

static FILE *open_under(const char *root, const char *path) {
  char name[CGROUP_PATH_BYTES];
  if (snprintf(name, sizeof name, "%s%s", root, path) >= (int)sizeof name) return NULL;
  return fopen(name, "re");
}

/* A line without its end; what does not fit is lost. */
static bool read_line(FILE *file, char *line, size_t bytes) {
  if (!fgets(line, (int)bytes, file)) return false;
  size_t length = strcspn(line, "\n");
  if (line[length] == '\0')
    for (int c = getc(file); c != EOF && c != '\n';) c = getc(file);
  line[length] = '\0';
  return true;
}

/* "ID:CONTROLLERS:PATH", of version 2 "0::PATH". */
static bool find_path(const char *root, const char *controller, char path[CGROUP_PATH_BYTES]) {
  char line[CGROUP_PATH_BYTES];
  bool is_found = false;
  FILE *file = open_under(root, "/proc/self/cgroup");
  while (file && !is_found && read_line(file, line, sizeof line)) {
    char *controllers = strchr(line, ':'), *place = controllers ? strchr(++controllers, ':') : NULL;
    if (!place) continue;
    *place++ = '\0';
    is_found = controller ? is_in_list(controllers, controller) : *controllers == '\0';
    if (is_found) memcpy(path, place, strlen(place) + 1);
  }
  if (file) fclose(file);
  return is_found;
}

/* "ID PARENT DEVICE ROOT MOUNT_POINT ... - TYPE SOURCE OPTIONS": what is mounted where; both are in the line. */
static bool parse_mount(char *line, const char *controller, const char **mounted, const char **place) {
  char *kind = strstr(line, " - "), *rest = line;
  if (!kind) return false;
  *kind = '\0', kind += strlen(" - ");
  for (int i = 0; i < 3; i++) strsep(&rest, " ");
  *mounted = strsep(&rest, " "), *place = strsep(&rest, " ");
  const char *type = strsep(&kind, " ");
  strsep(&kind, " ");
  if (!*mounted || !*place || !kind) return false;
  return controller ? !strcmp(type, "cgroup") && is_in_list(kind, controller) : !strcmp(type, "cgroup2");
}

/* A path that is not below the mounted one is the host's, as in a container without a namespace of its own. The group
 * is then what is mounted. */
static bool place_group(struct cgroup *group, const char *root, const char *path, const char *mounted,
                        const char *place) {
  size_t shared = strcmp(mounted, "/") != 0 ? strlen(mounted) : 0;
  bool is_below = !strncmp(path, mounted, shared) && (path[shared] == '/' || path[shared] == '\0');
  const char *below = is_below ? path + shared : "";
  int length = snprintf(group->folder, sizeof group->folder, "%s%s", root, place);
  if (length >= (int)sizeof group->folder) return false;
  group->outermost = (size_t)length;
  size_t room = sizeof group->folder - group->outermost;
  return snprintf(group->folder + group->outermost, room, "%s", strcmp(below, "/") != 0 ? below : "") < (int)room;
}

bool cgroup_find(struct cgroup *group, const char *root, const char *controller) {
  char path[CGROUP_PATH_BYTES], line[CGROUP_PATH_BYTES];
  if (!find_path(root, controller, path)) return false;
  bool is_found = false;
  FILE *file = open_under(root, "/proc/self/mountinfo");
  while (file && !is_found && read_line(file, line, sizeof line)) {
    const char *mounted, *place;
    is_found = parse_mount(line, controller, &mounted, &place) && place_group(group, root, path, mounted, place);
  }
  if (file) fclose(file);
  return is_found;
}

bool cgroup_leave(struct cgroup *group) {
  char *slash = strrchr(group->folder, '/');
  if (!slash || (size_t)(slash - group->folder) < group->outermost) return false;
  *slash = '\0';
  return true;
}

bool cgroup_read(const struct cgroup *group, const char *name, char *line, size_t bytes) {
  char path[CGROUP_PATH_BYTES + 64];
  snprintf(path, sizeof path, "%s/%s", group->folder, name);
  FILE *file = fopen(path, "re");
  bool is_read = file && read_line(file, line, bytes);
  if (file) fclose(file);
  return is_read;
}

bool cgroup_number(const struct cgroup *group, const char *file, int64_t *number) {
  char line[64];
  return cgroup_read(group, file, line, sizeof line) && sscanf(line, "%" SCNd64, number) == 1;
}

bool cgroup_field(const char *path, const char *name, uint64_t *number) {
  char line[256];
  size_t length = strlen(name);
  bool is_found = false;
  FILE *file = fopen(path, "re");
  while (file && !is_found && read_line(file, line, sizeof line))
    is_found = !strncmp(line, name, length) && (line[length] == ' ' || line[length] == ':') &&
               sscanf(line + length + 1, "%" SCNu64, number) == 1;
  if (file) fclose(file);
  return is_found;
}
