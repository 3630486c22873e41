import static org.codelibs.opensearch.runner.OpenSearchRunner.newConfigs;

import org.codelibs.opensearch.runner.OpenSearchRunner;

/** Runs one node on two loopback ports, with its data in a folder, until it is killed: PORT TRANSPORT-PORT FOLDER. */
public class Node {
    public static void main(String[] arguments) throws Exception {
        OpenSearchRunner runner = new OpenSearchRunner();
        runner.onBuild((number, settings) -> {
            settings.put("http.port", arguments[0]);
            settings.put("transport.port", arguments[1]);
            settings.put("network.host", "127.0.0.1");
            settings.put("node.roles", "cluster_manager,data,ingest");
            settings.put("discovery.type", "single-node");
            // The machine's disk may be fuller than a server's.
            settings.put("cluster.routing.allocation.disk.threshold_enabled", "false");
        }).build(newConfigs().clusterName("tidings").numOfNode(1).basePath(arguments[2]));
        Thread.currentThread().join();
    }
}
