//! Ways to directories at any depth, and descriptors that lead there in few steps.

use super::os;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The way to a directory from the one that the user named. Entries share it, so that each takes no
/// more room in a deep tree than in a flat one.
#[derive(Clone)]
pub struct TreePath(Arc<Step>);

struct Step {
    above: Option<TreePath>,
    name: Vec<u8>,
    depth: usize,
}

impl TreePath {
    /// Returns the way to the directory that the user named `path`.
    pub fn top(path: &Path) -> TreePath {
        let name = path.as_os_str().as_encoded_bytes().to_vec();
        TreePath(Arc::new(Step { above: None, name, depth: 0 }))
    }

    /// Returns the way to `name` in it.
    pub fn below(&self, name: &[u8]) -> TreePath {
        TreePath(Arc::new(Step { above: Some(self.clone()), name: name.to_vec(), depth: self.0.depth + 1 }))
    }

    /// Returns the path, for people.
    pub fn path(&self) -> PathBuf {
        let mut names = Vec::new();
        let mut at = Some(self);
        while let Some(TreePath(step)) = at {
            names.push(os(&step.name));
            at = step.above.as_ref();
        }
        names.into_iter().rev().collect()
    }

    /// Returns the names on the way from the directory that the user named.
    pub fn names(&self) -> Vec<&[u8]> {
        let mut names = Vec::new();
        let mut step = &self.0;
        while let Some(TreePath(above)) = &step.above {
            names.push(&step.name[..]);
            step = above;
        }
        names.reverse();
        names
    }

    /// True for the directory that the user named.
    pub fn is_top(&self) -> bool {
        self.0.above.is_none()
    }

    /// True if both are the way to one directory of one walk.
    pub fn is(&self, other: &TreePath) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Drop for Step {
    /// Drops iteratively: recursion could be deeper than the stack.
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(TreePath(step)) = above {
            above = Arc::into_inner(step).and_then(|mut step| step.above.take());
        }
    }
}

/// Descriptors of directories on the way to the last one reached: of all near above it, and of ever
/// fewer farther up. So a walk down a tree and back opens a few directories for each that it comes
/// to, at any depth.
pub struct Trail<D> {
    /// Descriptors from the top down; the top itself always is one.
    kept: Vec<(TreePath, D)>,
}

/// Number of directories kept in each stretch as long as the distance below it, about.
const KEPT: usize = 8;

/// Purpose for which a directory is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// To reach others below it.
    Passing,
    /// To be used.
    Use,
}

impl<D: Clone> Trail<D> {
    /// Returns the trail of `top`, the directory that the user named.
    pub fn new(top: (TreePath, D)) -> Trail<D> {
        Trail { kept: vec![top] }
    }

    /// Goes to the directory at `way`, which is not the top. `open` opens a name in a directory.
    pub fn go<E>(&mut self, way: &TreePath, mut open: impl FnMut(&D, &[u8], For) -> Result<D, E>) -> Result<D, E> {
        let mut steps = Vec::new();
        let mut at = way;
        while let Some(above) = &at.0.above {
            steps.push(at);
            at = above;
            while self.kept.len() > 1 && self.is_off(at) {
                self.kept.pop();
            }
            if self.last().0.is(at) {
                break;
            }
        }
        while let Some(step) = steps.pop() {
            let why = if steps.is_empty() { For::Use } else { For::Passing };
            let opened = open(&self.last().1, &step.0.name, why)?;
            self.kept.push((step.clone(), opened));
            self.thin_out(step.0.depth);
        }
        Ok(self.last().1.clone())
    }

    fn last(&self) -> &(TreePath, D) {
        self.kept.last().expect("the top is kept")
    }

    /// True if the last kept descriptor is not on the way to `at`, as far as depths show.
    fn is_off(&self, at: &TreePath) -> bool {
        let (last, _) = self.last();
        last.0.depth > at.0.depth || last.0.depth == at.0.depth && !last.is(at)
    }

    /// Keeps those whose depth is a multiple of a number that grows with how far above `depth` they
    /// lie.
    fn thin_out(&mut self, depth: usize) {
        self.kept.retain(|(way, _)| way.0.depth % ((depth - way.0.depth) / KEPT).next_power_of_two() == 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes to `way`, counts the opens, and checks that each is in the one above it.
    fn go(trail: &mut Trail<usize>, way: &TreePath) -> usize {
        let mut count = 0;
        let reached = trail.go(way, |above, _, _| {
            count += 1;
            Ok::<_, ()>(above + 1)
        });
        assert_eq!(reached, Ok(way.0.depth));
        count
    }

    #[test]
    fn a_walk_of_a_deep_tree_opens_a_few_directories_for_each() {
        const DEPTH: usize = 60_000;
        let top = TreePath::top(Path::new("/top"));
        let mut ways = vec![top.clone()];
        let mut trail = Trail::new((top, 0));
        let (mut down, mut kept) = (0, 0);
        for depth in 1..=DEPTH {
            let way = ways[depth - 1].below(b"d");
            down += go(&mut trail, &way);
            kept = kept.max(trail.kept.len());
            ways.push(way);
        }
        assert_eq!(down, DEPTH);
        let mut up = 0;
        for way in ways[1..].iter().rev() {
            up += go(&mut trail, way);
            kept = kept.max(trail.kept.len());
        }
        assert!(up <= 8 * DEPTH, "{up}");
        assert!(kept <= 256, "{kept}");
    }

    #[test]
    fn a_walk_goes_from_one_branch_to_another_by_what_is_above_both() {
        let top = TreePath::top(Path::new("top"));
        let [a, b] = [top.below(b"a"), top.below(b"b")];
        let [deep, other] = [a.below(b"x").below(b"y"), b.below(b"x")];
        let mut trail = Trail::new((top.clone(), 0));
        let counts = [&deep, &a, &deep, &other, &b, &other].map(|way| go(&mut trail, way));
        assert_eq!(counts, [3, 1, 2, 2, 1, 1]);
        assert_eq!(deep.path(), Path::new("top/a/x/y"));
        assert_eq!((deep.names(), top.names()), (vec![&b"a"[..], b"x", b"y"], vec![]));
        assert!(top.is_top() && !a.is_top() && a.is(&a.clone()) && !a.is(&b));
    }

    #[test]
    fn what_cannot_be_opened_leads_no_other_way_astray() {
        let top = TreePath::top(Path::new("top"));
        let way = top.below(b"a").below(b"b");
        let mut trail = Trail::new((top, 0));
        let refuse = |above: &usize, name: &[u8], _| if name == b"b" { Err(*above) } else { Ok(above + 1) };
        assert_eq!(trail.go(&way, refuse), Err(1));
        assert_eq!(go(&mut trail, &way), 1);
    }
}
