// Holds nothing: the target of this file owns the precompiled Torch headers that other targets reuse.
