/* Mounts over NFS without a helper: nfs ADDRESS:/PATH DIRECTORY OPTIONS. The kernel asks the server itself. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

int main(int argc, char **argv)
{
    char options[1024], address[256];
    const char *colon;

    if (argc != 4 || !(colon = strchr(argv[1], ':')) || (size_t)(colon - argv[1]) >= sizeof address) {
        fprintf(stderr, "nfs ADDRESS:/PATH DIRECTORY OPTIONS\n");
        return 2;
    }
    snprintf(address, sizeof address, "%.*s", (int)(colon - argv[1]), argv[1]);
    snprintf(options, sizeof options, "addr=%s,mountaddr=%s,%s", address, address, argv[3]);
    mkdir(argv[2], 0755);
    if (mount(argv[1], argv[2], "nfs", 0, options) != 0) {
        fprintf(stderr, "cannot mount %s: %s\n", argv[1], strerror(errno));
        return 1;
    }
    return 0;
}
