-- What is run on Citus after weft init, among the tables of the volume, as docs/guide/citus.md says.
SELECT create_distributed_table('fileatt', 'ino', colocate_with => 'none');
SELECT create_distributed_table('xattr', 'ino', colocate_with => 'fileatt');
SELECT create_distributed_table('extents', 'ino', colocate_with => 'fileatt');
SELECT create_distributed_table('nodes', 'ino', colocate_with => 'fileatt');
SELECT create_distributed_table('blocks', 'owner', colocate_with => 'fileatt');
SELECT create_distributed_table('naming', 'parent', colocate_with => 'fileatt');
SELECT create_distributed_table('branches', 'parent', colocate_with => 'fileatt');
SELECT create_distributed_table('fileatt_history', 'ino', colocate_with => 'fileatt');
SELECT create_distributed_table('content_history', 'ino', colocate_with => 'fileatt');
SELECT create_distributed_table('xattr_history', 'ino', colocate_with => 'fileatt');
SELECT create_distributed_table('extents_history', 'ino', colocate_with => 'fileatt');
SELECT create_distributed_table('naming_history', 'parent', colocate_with => 'fileatt');
