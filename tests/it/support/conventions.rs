//! Expositions in the exact names and labels of ten telemetry conventions, as their exporters write
//! them, with traffic that a test knows: so many requests a second to each dependency, a tenth of
//! them failing.

use std::fmt::Write;

use super::targets::Target;

/// Requests per second that succeed, and that fail, on each target and dependency.
pub(crate) const RATES: [f64; 2] = [45.0, 5.0];

/// One convention: its lines for one dependency and one caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Convention {
    /// The preset that must read it.
    pub(crate) preset: &'static str,
    /// The dependencies, as the labels name them.
    pub(crate) dependencies: [&'static str; 2],
    /// The label that names the caller, and its values: one for each target. None where the
    /// convention knows no callers.
    pub(crate) caller: Option<&'static str>,
    /// The series: `D` is the dependency, `C` the caller. Each begins with what it counts: `+`
    /// successes, `-` failures, `*` both, `0` something that must not be counted.
    series: &'static [&'static str],
}

/// Callers, one a target.
pub(crate) const CALLERS: [&str; 3] = ["cart", "checkout", "search"];

/// Ten conventions.
pub(crate) const CONVENTIONS: [Convention; 10] = [
    Convention {
        preset: "istio",
        dependencies: ["payments.shop.svc.cluster.local", "stock.shop.svc.cluster.local"],
        caller: Some("source_workload"),
        series: &[
            r#"+istio_requests_total{reporter="source",source_workload="C",source_workload_namespace="shop",source_principal="unknown",source_app="C",source_version="v1",source_cluster="Kubernetes",destination_workload="w",destination_workload_namespace="shop",destination_principal="unknown",destination_app="w",destination_version="v1",destination_service="D",destination_service_name="w",destination_service_namespace="shop",destination_cluster="Kubernetes",request_protocol="http",response_code="200",grpc_response_status="",response_flags="-",connection_security_policy="unknown"}"#,
            r#"-istio_requests_total{reporter="source",source_workload="C",source_workload_namespace="shop",source_principal="unknown",source_app="C",source_version="v1",source_cluster="Kubernetes",destination_workload="w",destination_workload_namespace="shop",destination_principal="unknown",destination_app="w",destination_version="v1",destination_service="D",destination_service_name="w",destination_service_namespace="shop",destination_cluster="Kubernetes",request_protocol="http",response_code="503",grpc_response_status="",response_flags="UF",connection_security_policy="unknown"}"#,
            r#"0istio_requests_total{reporter="destination",source_workload="C",source_workload_namespace="shop",destination_workload="w",destination_service="D",destination_service_name="w",destination_service_namespace="shop",request_protocol="http",response_code="503",response_flags="-",connection_security_policy="mutual_tls"}"#,
        ],
    },
    Convention {
        preset: "envoy",
        dependencies: ["payments", "stock"],
        caller: Some("job"),
        series: &[
            r#"*envoy_cluster_upstream_rq_total{envoy_cluster_name="D"}"#,
            r#"0envoy_cluster_upstream_rq_xx{envoy_response_code_class="2",envoy_cluster_name="D"}"#,
            r#"-envoy_cluster_upstream_rq_xx{envoy_response_code_class="5",envoy_cluster_name="D"}"#,
            r#"0envoy_cluster_upstream_rq{envoy_response_code="503",envoy_cluster_name="D"}"#,
        ],
    },
    Convention {
        preset: "spring-http-client",
        dependencies: ["payments.example", "stock.example"],
        caller: Some("job"),
        series: &[
            r#"+http_client_requests_seconds_count{client_name="D",error="none",exception="none",method="GET",outcome="SUCCESS",status="200",uri="/v1/charge"}"#,
            r#"-http_client_requests_seconds_count{client_name="D",error="none",exception="none",method="GET",outcome="SERVER_ERROR",status="503",uri="/v1/charge"}"#,
            r#"0http_client_requests_seconds_sum{client_name="D",error="none",exception="none",method="GET",outcome="SUCCESS",status="200",uri="/v1/charge"}"#,
        ],
    },
    Convention {
        preset: "otel-http-client",
        dependencies: ["payments.internal", "stock.internal"],
        caller: Some("job"),
        series: &[
            r#"+http_client_request_duration_seconds_count{http_request_method="POST",http_response_status_code="200",network_protocol_version="1.1",server_address="D",server_port="443",url_scheme="https"}"#,
            r#"-http_client_request_duration_seconds_count{error_type="503",http_request_method="POST",http_response_status_code="503",network_protocol_version="1.1",server_address="D",server_port="443",url_scheme="https"}"#,
            r#"0http_client_request_duration_seconds_bucket{http_request_method="POST",http_response_status_code="200",server_address="D",server_port="443",le="0.5"}"#,
        ],
    },
    Convention {
        preset: "linkerd",
        dependencies: ["payments", "stock"],
        caller: Some("deployment"),
        series: &[
            r#"*request_total{direction="outbound",target_addr="10.0.0.7:8080",authority="D:8080",dst_service="D",dst_namespace="shop",tls="true",deployment="C",namespace="shop"}"#,
            r#"+response_total{direction="outbound",target_addr="10.0.0.7:8080",authority="D:8080",dst_service="D",dst_namespace="shop",tls="true",status_code="200",classification="success",deployment="C",namespace="shop"}"#,
            r#"-response_total{direction="outbound",target_addr="10.0.0.7:8080",authority="D:8080",dst_service="D",dst_namespace="shop",tls="true",status_code="503",classification="failure",deployment="C",namespace="shop"}"#,
            r#"0request_total{direction="inbound",target_addr="10.0.0.9:8080",tls="true",deployment="C",namespace="shop"}"#,
        ],
    },
    Convention {
        preset: "go-grpc-prometheus",
        dependencies: ["shop.Payments", "shop.Stock"],
        caller: Some("job"),
        series: &[
            r#"*grpc_client_started_total{grpc_method="Charge",grpc_service="D",grpc_type="unary"}"#,
            r#"+grpc_client_handled_total{grpc_code="OK",grpc_method="Charge",grpc_service="D",grpc_type="unary"}"#,
            r#"-grpc_client_handled_total{grpc_code="Unavailable",grpc_method="Charge",grpc_service="D",grpc_type="unary"}"#,
        ],
    },
    Convention {
        preset: "grpc-otel",
        dependencies: ["dns:///payments:443", "dns:///stock:443"],
        caller: Some("job"),
        series: &[
            r#"*grpc_client_attempt_started_total{grpc_method="shop.Payments/Charge",grpc_target="D"}"#,
            r#"+grpc_client_attempt_duration_seconds_count{grpc_method="shop.Payments/Charge",grpc_status="OK",grpc_target="D"}"#,
            r#"-grpc_client_attempt_duration_seconds_count{grpc_method="shop.Payments/Charge",grpc_status="UNAVAILABLE",grpc_target="D"}"#,
        ],
    },
    Convention {
        preset: "haproxy",
        dependencies: ["payments", "stock"],
        caller: None,
        series: &[
            r#"*haproxy_backend_http_requests_total{proxy="D"}"#,
            r#"+haproxy_backend_http_responses_total{proxy="D",code="2xx"}"#,
            r#"-haproxy_backend_http_responses_total{proxy="D",code="5xx"}"#,
        ],
    },
    Convention {
        preset: "traefik",
        dependencies: ["payments@docker", "stock@docker"],
        caller: None,
        series: &[
            r#"+traefik_service_requests_total{code="200",method="GET",protocol="http",service="D"}"#,
            r#"-traefik_service_requests_total{code="502",method="GET",protocol="http",service="D"}"#,
            r#"0traefik_service_requests_total{code="0",method="GET",protocol="websocket",service="D"}"#,
        ],
    },
    Convention {
        preset: "kubernetes-client-go",
        dependencies: ["10.96.0.1:443", "metrics.k8s.io:443"],
        caller: Some("job"),
        series: &[
            r#"+rest_client_requests_total{code="200",host="D",method="GET"}"#,
            r#"-rest_client_requests_total{code="<error>",host="D",method="GET"}"#,
        ],
    },
];

/// The convention that a preset reads.
pub(crate) fn convention(preset: &str) -> &'static Convention {
    CONVENTIONS.iter().find(|it| it.preset == preset).expect("a convention of this file")
}

impl Convention {
    /// Its targets, one for each caller; `extra` labels name more.
    pub(crate) fn targets(&'static self, extra: &[(&'static str, &str)]) -> Vec<Target> {
        let target = |caller: &'static str| {
            let mut labels = vec![
                // Where the job names the caller it is the caller's, as it is in the field.
                ("job", caller.to_owned()),
                ("instance", format!("{caller}-{}:9090", self.preset)),
            ];
            labels.extend(extra.iter().map(|(name, value)| (*name, (*value).to_owned())));
            Target { labels, exposition: Box::new(move |elapsed| self.exposition(caller, elapsed)) }
        };
        CALLERS.into_iter().map(target).collect()
    }

    fn exposition(&self, caller: &str, elapsed: f64) -> String {
        let mut text = String::new();
        let [good, bad] = RATES.map(|rate| 1000.0 + (rate * elapsed).floor());
        let mut declared = "";
        for line in self.series {
            let (counts, series) = line.split_at(1);
            let value = match counts {
                "+" => good,
                "-" => bad,
                "*" => good + bad,
                _ => 7.0 * (good + bad),
            };
            let name = series.split('{').next().unwrap_or_default();
            if name != declared {
                let _infallible = writeln!(text, "# TYPE {name} counter");
                declared = name;
            }
            for dependency in self.dependencies {
                // Quotes around them, since a name may hold either letter.
                let series = series
                    .replace("\"D\"", &format!("{dependency:?}"))
                    .replace("\"D:8080\"", &format!("\"{dependency}:8080\""))
                    .replace("\"C\"", &format!("{caller:?}"));
                let _infallible = writeln!(text, "{series} {value}");
            }
        }
        text
    }
}
