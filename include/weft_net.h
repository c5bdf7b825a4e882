/* Networks of stages on files that are in use: ioctl(2) on any file of a volume that Weft has mounted.
 *
 * WEFT_NET_PUSH puts a network between the file and whoever reads and writes it, WEFT_NET_POP takes the one away that was pushed last, and WEFT_NET_SHOW
 * tells those that are there. They stay until they are popped, or the volume is unmounted; those for one open file until that is closed for good.
 *
 * WEFT_NET_OPENED means the open file (file description) of the descriptor alone. The kernel must tell of opens (weft mount --opens), and the file must have
 * been opened with O_DIRECT, or have got that by fcntl(F_SETFL), as the page cache is for everybody: reads and writes that go through it, also those of mmap(2),
 * mean the file as others see it. The network must leave the length of the file as it is.
 *
 * WEFT_NET_EVERYBODY means all who use the file by this mount and have nothing pushed of their own. That is for the file's owner to say, and the super-user.
 *
 * Errors: EINVAL (no file, no such network, nothing to pop), EPERM, EOPNOTSUPP (WEFT_NET_OPENED, where that cannot be), ELOOP (too many),
 * EBUSY (somebody is writing all of it anew), EDQUOT and ENOMEM (what the user pushed, or what all did, takes as much memory as it may),
 * ENOTTY (no file of a volume).
 */
#ifndef WEFT_NET_H
#define WEFT_NET_H

#include <stdint.h>
#include <sys/ioctl.h>

enum { WEFT_NET_OPENED = 0, WEFT_NET_EVERYBODY = 1 };

struct weft_net {
    uint32_t scope;
    /* Bytes of text. */
    uint32_t length;
    /* PUSH: the network (docs/reference/networks.md), and after NULs the paths of files, from the root of the volume on, with code that it runs: they are $2 and so on.
     * SHOW: each network ended by a NUL, the last pushed first. */
    char text[8184];
};

#define WEFT_NET_PUSH _IOW('W', 1, struct weft_net)
#define WEFT_NET_POP _IOW('W', 2, struct weft_net)
#define WEFT_NET_SHOW _IOWR('W', 3, struct weft_net)

#endif
