"""What is known of a model that is spread over ranks: the mesh, and how each local tensor lies in the whole one."""
