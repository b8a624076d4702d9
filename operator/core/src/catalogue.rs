//! Facts about operands, floors, instance types, exclusions and images, as data. Each row carries its reason and source, since
//! published support statements contradict each other and change.
