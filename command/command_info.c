/* command_info.c - rondo info: shows the device that Rondo chooses by default and the reason, and each device with the
 * lanes that it can be divided into. */
#include "command.h"

struct options {
  const char *json;
};

static const struct argument arguments[] = {JSON_ARGUMENT(struct options)};

/* Opens the smallest pools: the command only asks for facts about the device. */
static rondo_status open_small(rondo_backend backend, int32_t device, const rondo_lane *lanes, uint32_t lane_count,
                               rondo_runtime **runtime) {
  return rondo_open(&(rondo_options){.backend = backend,
                                     .device = device,
                                     .device_bytes = 1 << 20,
                                     .pinned_bytes = 1 << 20,
                                     .host_bytes = 1 << 20,
                                     .lanes = lanes,
                                     .lane_count = lane_count},
                    runtime);
}

/* The code of the library that a chip runs. */
static const char *code_of(int32_t chip) {
  if (chip == 90) return "compiled for sm_90a";
  if (chip == 100) return "compiled for sm_100a";
  return chip < 90 ? "compiled for sm_80" : "PTX of sm_80, compiled by the driver";
}

/* Asks for a lane with one multiprocessor, or thread. It gets the fewest that a lane can have. */
static void write_lanes(rondo_backend backend, int32_t device, int32_t multiprocessors, struct output *output) {
  rondo_runtime *runtime;
  rondo_lane_grant grant;
  bool is_host = backend == RONDO_BACKEND_HOST;
  if (open_small(backend, device, (rondo_lane[]){{.multiprocessors = 1}, {0}}, 2, &runtime) != RONDO_OK) {
    output_print(output, "  lanes            none with multiprocessors of their own: %s\n", rondo_error_text());
    json_text(&output->json, "lanes_refused", rondo_error_text());
    return;
  }
  if (rondo_lane_info(runtime, 0, &grant) == RONDO_OK && grant.multiprocessors > 0) {
    int32_t parts = multiprocessors / grant.multiprocessors;
    int32_t most = parts < RONDO_MAX_LANES ? parts : RONDO_MAX_LANES;
    output_print(output, "  lanes            at most %d with %s of their own, %d at a time\n", most,
                 is_host ? "threads" : "multiprocessors", grant.multiprocessors);
    json_whole(&output->json, "lanes_most", (uint64_t)most);
    json_whole(&output->json, "lane_multiprocessors", (uint64_t)grant.multiprocessors);
  }
  rondo_close(&runtime);
}

static void write_info(const rondo_info *info, struct output *output) {
  json_text(&output->json, "name", info->device_name);
  if (info->backend == RONDO_BACKEND_CUDA) {
    output_print(output, "  chip             sm_%d, runs code %s\n", info->chip, code_of(info->chip));
    output_print(output, "  driver           CUDA %d.%d\n", info->driver_version / 1000,
                 info->driver_version % 1000 / 10);
    output_print(output, "  multiprocessors  %d\n", info->multiprocessors);
    output_print(output, "  free memory      %.1f GB\n", (double)info->free_device_bytes / 1e9);
    json_whole(&output->json, "chip", (uint64_t)info->chip);
    json_text(&output->json, "code", code_of(info->chip));
    json_whole(&output->json, "driver_version", (uint64_t)info->driver_version);
    json_whole(&output->json, "free_bytes", info->free_device_bytes);
  }
  json_whole(&output->json, "multiprocessors", (uint64_t)info->multiprocessors);
}

/* One device. If it cannot be used, the reason. */
static void write_device(rondo_backend backend, int32_t device, struct output *output) {
  rondo_runtime *runtime = NULL;
  rondo_info info;
  bool is_host = backend == RONDO_BACKEND_HOST;
  json_begin(&output->json, NULL, '{');
  json_text(&output->json, "backend", is_host ? "host" : "cuda");
  if (!is_host) json_whole(&output->json, "device", (uint64_t)device);
  rondo_status status = open_small(backend, device, NULL, 0, &runtime);
  if (status == RONDO_OK) status = rondo_runtime_info(runtime, &info);
  if (is_host)
    output_print(output, "\n%s\n", status == RONDO_OK ? info.device_name : "host");
  else
    output_print(output, "\ndevice %d%s%s\n", device, status == RONDO_OK ? ": " : "",
                 status == RONDO_OK ? info.device_name : "");
  if (status == RONDO_OK) {
    write_info(&info, output);
    rondo_close(&runtime);
    write_lanes(backend, device, info.multiprocessors, output);
  } else {
    output_print(output, "  cannot be used   %s\n", rondo_error_text());
    json_text(&output->json, "unusable", rondo_error_text());
    rondo_close(&runtime);
  }
  json_end(&output->json, '}');
}

static int write_all(struct output *output) {
  rondo_runtime *runtime;
  rondo_info info;
  if (open_small(RONDO_BACKEND_AUTO, 0, NULL, 0, &runtime) != RONDO_OK) return command_failed("%s", rondo_error_text());
  if (rondo_runtime_info(runtime, &info) != RONDO_OK) return command_failed("%s", rondo_error_text());
  output_print(output, "library    %s, ABI %u\nruns on    %s\nbecause    %s\n", RONDO_VERSION_STRING, RONDO_ABI_VERSION,
               info.device_name, info.reason);
  json_begin(&output->json, NULL, '{');
  json_text(&output->json, "version", RONDO_VERSION_STRING);
  json_whole(&output->json, "abi", RONDO_ABI_VERSION);
  json_text(&output->json, "runs_on", info.device_name);
  json_text(&output->json, "because", info.reason);
  rondo_close(&runtime);
  json_begin(&output->json, "devices", '[');
  const int32_t count = cuda_device_count(INT32_MAX);
  for (int32_t device = 0; device < count; device++) write_device(RONDO_BACKEND_CUDA, device, output);
  write_device(RONDO_BACKEND_HOST, 0, output);
  json_end(&output->json, ']');
  json_end(&output->json, '}');
  return EXIT_OK;
}

int command_info(int count, char **words) {
  static const struct grammar grammar = {
      .program = "rondo info",
      .about = "Shows the device that Rondo chooses if the program leaves the choice to it, and the reason. Shows the "
               "chip,\n"
               "driver, multiprocessors, free memory and possible lanes of each device.\n",
      .options = ARGUMENT_TABLE(arguments)};
  struct options options = {0};
  int done = arguments_read(&grammar, count, words, &options, NULL);
  if (done != ARGUMENTS_READ) return done;
  struct output output;
  if (!output_open(&output, options.json)) return EXIT_FAILED;
  int code = write_all(&output);
  return output_close(&output) ? code : EXIT_FAILED;
}
