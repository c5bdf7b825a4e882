//! Manual pages of what is no command: the helper of mount(8), and the language of networks.

use super::markdown::{as_page, section};
use clap::Command;

/// The document of the language of networks.
const NETWORKS: &str = include_str!("../../../../../docs/reference/networks.md");

/// The document of options, variables and files.
const CONFIGURATION: &str = include_str!("../../../../../docs/reference/configuration.md");

/// Returns the section on environment variables.
pub fn environment() -> String {
    format!(".SH ENVIRONMENT\n{}", as_page(section(CONFIGURATION, "Environment").unwrap_or_default()))
}

/// Returns the section on files.
pub fn files() -> String {
    format!(".SH FILES\n{}", as_page(section(CONFIGURATION, "Files").unwrap_or_default()))
}

/// Returns weft-networks(7).
pub fn networks() -> String {
    let text = NETWORKS.split_once('\n').map_or(NETWORKS, |(_, text)| text);
    let (about, rest) = text.split_once("\n## ").unwrap_or((text, ""));
    format!(
        "{}.SH NAME\nweft\\-networks \\- the language of networks of stages\n.SH DESCRIPTION\n{}{}.SH \"SEE ALSO\"\n\
         \\fBweft\\-link\\fR(1), \\fBweft\\-net\\fR(1), \\fBweft\\-run\\fR(1), \\fBweft\\-stages\\fR(1)\n",
        title("weft-networks", 7),
        as_page(about),
        as_page(&format!("## {rest}"))
    )
}

/// Returns mount.weft(8); `mount` is the command that it is another name of, and `is_option` tells
/// which of its arguments are options of `-o`.
pub fn helper(mount: &Command, is_option: impl Fn(&str) -> bool) -> String {
    let mut page = title("mount.weft", 8);
    page.push_str(
        ".SH NAME\nmount.weft, mount.fuse.weft, umount.weft \\- mount and unmount Weft volumes by mount(8) and umount(8)\n\
         .SH SYNOPSIS\n\\fBmount \\-t weft\\fR [\\fB\\-o\\fR \\fIoptions\\fR] \\fIVOLUME\\fR \\fIDIRECTORY\\fR\n.br\n\
         \\fBumount\\fR \\fIDIRECTORY\\fR\n.SH DESCRIPTION\n\
         mount(8) calls \\fBmount.weft\\fR for volumes of the type \\fBweft\\fR, which does what \\fBweft mount\\fR does.\n\
         umount(8) calls \\fBumount.weft\\fR, which returns once all is committed.\n\
         A volume is a path, or a postgres:// URL.\n.SH OPTIONS\n\
         Options of mount(8) that have a meaning: \\fBro\\fR, \\fBrw\\fR, \\fBnoatime\\fR, \\fBrelatime\\fR, \\fBstrictatime\\fR, \
         \\fBsuid\\fR, \\fBdev\\fR, \\fBexec\\fR, their opposites, \\fBdefaults\\fR and \\fBremount\\fR. \
         \\fB_netdev\\fR is for volumes in PostgreSQL in /etc/fstab, \\fBallow_other\\fR for mounts of users. Others are:\n",
    );
    for argument in mount.get_arguments() {
        let Some(name) = argument.get_long().filter(|name| is_option(name)) else { continue };
        let takes_value = argument.get_action().takes_values();
        let value = argument.get_value_names().and_then(|names| names.first()).filter(|_| takes_value);
        let value = value.map_or_else(String::new, |value| format!("=\\fI{value}\\fR"));
        let help = argument.get_long_help().or_else(|| argument.get_help());
        let help = help.map(ToString::to_string).unwrap_or_default();
        let (name, help) = (name.replace('-', "\\-"), as_page(&help));
        page.push_str(&format!(".TP\n\\fB{name}\\fR{value}\n{}", help.trim_start_matches(".PP\n")));
    }
    page.push_str(&format!(
        ".SH \"EXIT STATUS\"\n0: it is mounted. Others: those of mount(8).\n{}{}.SH EXAMPLES\n.nf\n.RS 4\n\
         # /etc/fstab\n/srv/photos.weft /mnt/photos weft defaults,noatime 0 0\n\
         postgres://weft@db/volumes?schema=home /home weft _netdev,wait=60 0 0\n.RE\n.fi\n.SH \"SEE ALSO\"\n\
         \\fBweft\\-mount\\fR(1), \\fBweft\\-umount\\fR(1), \\fBmount\\fR(8), \\fBfstab\\fR(5)\n",
        environment(),
        files()
    ));
    page
}

fn title(name: &str, section: u8) -> String {
    format!(".TH {name} {section} \"\" \"weft {}\"\n", env!("CARGO_PKG_VERSION"))
}
