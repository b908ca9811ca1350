//! Floor 4: the jobs themselves: walk, plan, run, settle; copy and sum
