//! Size of a fleet and names of its nodes.

use clap::Args;

/// How many nodes with how many volumes.
#[derive(Debug, Clone, Args)]
pub struct Plan {
    /// How many nodes
    #[arg(long, default_value_t = 3)]
    pub nodes: usize,
    /// How many volumes each node has at first
    #[arg(long, default_value_t = 0)]
    pub volumes: usize,
    /// How many drives each node has
    #[arg(long, default_value_t = 8)]
    pub drives: usize,
    /// Node ids are this and a number from 0
    #[arg(long, default_value = "n")]
    pub prefix: String,
    /// Machine ids are this and the node id; another one makes other machines with the same names
    #[arg(long, default_value = "machine-")]
    pub machine: String,
    /// The first volumes are made up from this
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            nodes: 3,
            volumes: 0,
            drives: 8,
            prefix: "n".to_owned(),
            machine: "machine-".to_owned(),
            seed: 1,
        }
    }
}

impl Plan {
    /// Returns the id of the `index`th node.
    pub fn node(&self, index: usize) -> String {
        format!("{}{index}", self.prefix)
    }

    /// Returns the machine id of the `index`th node.
    pub fn machine_id(&self, index: usize) -> String {
        format!("{}{}", self.machine, self.node(index))
    }

    /// Returns the index of a node of this plan; None if it has no such node.
    pub fn index(&self, node: &str) -> Option<usize> {
        let number = node.strip_prefix(&self.prefix)?.parse().ok()?;
        (number < self.nodes && self.node(number) == node).then_some(number)
    }
}
