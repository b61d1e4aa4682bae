"""Engines that propagate electron waves through slices: plain, fused, GPU and PRISM."""
