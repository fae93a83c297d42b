-- A digest of what stages see of a window's flows; it depends on neither the order of rows nor the numbers of texts.
-- Empty if the window has no flow.
SELECT
    coalesce(
        concat_ws(
            ' ',
            nullif(count(*), 0),
            sum(hash(flows.flow_start_ns, flows.flow_end_ns, src.value, dst.value, flows.bytes, path.value))
        ),
        ''
    )
FROM stored.flows AS flows
INNER JOIN stored.names AS src ON flows.src_addr = src.number
INNER JOIN stored.names AS dst ON flows.dst_addr = dst.number
LEFT JOIN stored.paths AS path ON flows.switch_path = path.number
WHERE flows.window_start_ns = $start_ns;
