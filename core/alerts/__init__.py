"""Rules that watch a training while it is recorded, in the writer's thread, and the alerts that they lead to."""
