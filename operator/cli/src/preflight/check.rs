//! What is checked, each with an ID that never changes its meaning.

use serde::Serialize;

macro_rules! checks {
    ($( $(#[doc = $doc:literal])* $name:ident $id:literal $category:literal $title:literal )*) => {
        /// A check.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        pub(crate) enum Check {
            $( $(#[doc = $doc])* $name, )*
        }

        impl Check {
            /// All of them, in the order in which they are made.
            pub(crate) const ALL: &[Self] = &[$( Self::$name, )*];

            /// Stable ID.
            pub(crate) const fn id(self) -> &'static str {
                match self { $( Self::$name => $id, )* }
            }

            /// Heading it stands under.
            pub(crate) const fn category(self) -> &'static str {
                match self { $( Self::$name => $category, )* }
            }

            /// More about it, for the documentation.
            #[cfg(test)]
            pub(crate) const fn about(self) -> &'static str {
                match self { $( Self::$name => concat!($($doc),*), )* }
            }

            /// What holds when it passes.
            pub(crate) const fn title(self) -> &'static str {
                match self { $( Self::$name => $title, )* }
            }
        }
    };
}

checks! {
    /// Everything else rests on it: when it fails, the rest is skipped.
    Reachable "FH1001" "API server" "answers, and knows who is asking"
    /// Freehold's own floor; operands may ask for more (FH1202).
    ServerVersion "FH1002" "API server" "is new enough"
    /// Needed by cohorts with owner DRA alone.
    DraApi "FH1003" "API server" "serves resource.k8s.io/v1"
    /// Tried by a server dry run, with every schema and CEL rule, within this server's cost budget.
    Accepts "FH1004" "API server" "accepts this version's custom resource definitions"

    /// Both are there and the API server serves them.
    Definitions "FH1101" "Installation" "custom resource definitions are established"
    /// The schemas in force are those of this version of the plugin; with others, fields are refused or dropped.
    DefinitionsCurrent "FH1102" "Installation" "custom resource definitions are this version's"
    /// Vendors' plugins mount host directories, which takes the pod security level privileged in `freehold-operands`.
    Namespaces "FH1103" "Installation" "namespaces are there and admit what runs in them"
    /// Asked by access reviews in the name of each service account, for every rule that this version's roles grant.
    Permissions "FH1104" "Installation" "service accounts may do what they must"
    /// Policies and their bindings are there and say what this version ships.
    Policies "FH1105" "Installation" "admission policies are in force"

    /// Parsed here, and tried by a server dry run, which includes CEL rules, webhooks and other policies.
    Intent "FH1201" "AcceleratorCluster" "is valid"
    /// The floors of the operands that its cohorts run, and `extendedResourceName: Publish`.
    Floors "FH1202" "AcceleratorCluster" "asks for nothing that this API server is too old for"
    /// RuntimeClasses, and ConfigMaps with their keys.
    References "FH1203" "AcceleratorCluster" "names only objects that exist"
    /// A cohort that selects nothing is allowed and rarely meant; a node that two cohorts of a vendor select stays as it is.
    Selectors "FH1204" "AcceleratorCluster" "selects nodes, each by one cohort of a vendor"

    /// A ClusterPolicy or GPUCluster of NVIDIA's GPU Operator owns every NVIDIA GPU of the cluster.
    Operators "FH1301" "Other owners" "no other operator owns the devices"
    /// DaemonSets are judged by image and host path, never by name.
    ForeignDaemonSets "FH1302" "Other owners" "no other device plugin or DRA driver is deployed"
    /// Allocatable resources or ResourceSlices where no owner label of Freehold says so.
    ForeignResources "FH1303" "Other owners" "no node advertises devices that Freehold does not hand out"
}

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Outcome {
    Pass,
    Warn,
    Fail,
    /// It did not apply.
    Skipped,
    /// It could not be made.
    Unknown,
}

/// A check with its outcome.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    #[serde(skip)]
    pub(crate) check: Check,
    pub(crate) id: &'static str,
    pub(crate) category: &'static str,
    pub(crate) title: &'static str,
    pub(crate) outcome: Outcome,
    /// Object concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) object: Option<String>,
    /// What was found; for a skipped or unknown check, why.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) cause: String,
    /// What to do next.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) next: String,
    /// Where the documentation tells more.
    pub(crate) docs: String,
}

impl Check {
    /// Anchor of the check's section in the documentation.
    pub(crate) fn anchor(self) -> String {
        format!("docs/preflight.md#{}", self.id().to_ascii_lowercase())
    }

    fn found(self, outcome: Outcome, cause: impl Into<String>) -> Finding {
        Finding {
            check: self,
            id: self.id(),
            category: self.category(),
            title: self.title(),
            outcome,
            object: None,
            cause: cause.into(),
            next: String::new(),
            docs: self.anchor(),
        }
    }

    /// It holds; `detail` is worth knowing, or empty.
    pub(crate) fn pass(self, detail: impl Into<String>) -> Finding {
        self.found(Outcome::Pass, detail)
    }

    /// It does not hold, and Freehold cannot work as wanted.
    pub(crate) fn fail(
        self,
        object: impl Into<String>,
        cause: impl Into<String>,
        next: impl Into<String>,
    ) -> Finding {
        Finding {
            object: Some(object.into()),
            next: next.into(),
            ..self.found(Outcome::Fail, cause)
        }
    }

    /// It does not hold, and Freehold can work all the same, or elsewhere.
    pub(crate) fn warn(
        self,
        object: impl Into<String>,
        cause: impl Into<String>,
        next: impl Into<String>,
    ) -> Finding {
        Finding {
            object: Some(object.into()),
            next: next.into(),
            ..self.found(Outcome::Warn, cause)
        }
    }

    /// It does not apply.
    pub(crate) fn skipped(self, why: impl Into<String>) -> Finding {
        self.found(Outcome::Skipped, why)
    }

    /// It could not be made.
    pub(crate) fn unknown(self, why: impl Into<String>) -> Finding {
        self.found(Outcome::Unknown, why)
    }
}
