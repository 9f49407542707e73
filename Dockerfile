# The images of the filter and of the simulated engine, each a target: one static program,
# no shell, no package manager. They are two so that a filter which serves users has no
# simulated engine beside it.
#
# "make image" compiles on the host and replaces the build stage by the result. To
# compile in a container, with a base image of your choice and its digest:
#
#   docker buildx build --target envoy-harmony --build-arg GO_IMAGE=golang:1.26.8-bookworm@sha256:... \
#     --build-arg VERSION=1.2.3 --build-arg COMMIT=... --build-arg COMMIT_DATE=2026-01-02T15:04:05Z .
ARG GO_IMAGE=golang:1.26.8-bookworm
ARG VERSION=0.0.0-dev
ARG COMMIT=unknown
ARG COMMIT_DATE=1970-01-01T00:00:00Z

FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
ARG TARGETARCH
ARG VERSION
ARG COMMIT
ARG COMMIT_DATE
WORKDIR /src
COPY . .
RUN cd tools/release && go run . root -platforms "linux/$TARGETARCH" \
    -version "$VERSION" -commit "$COMMIT" -date "$COMMIT_DATE" -out /out

FROM scratch AS engine-sim
ARG TARGETARCH
ARG VERSION
ARG COMMIT
ARG COMMIT_DATE
LABEL org.opencontainers.image.title="engine-sim" \
      org.opencontainers.image.description="A simulated gpt-oss engine, to try and test envoy-harmony: no model" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT" \
      org.opencontainers.image.created="$COMMIT_DATE" \
      org.opencontainers.image.source="https://github.com/envoy-harmony/envoy-harmony" \
      org.opencontainers.image.documentation="https://github.com/envoy-harmony/envoy-harmony/tree/main/docs" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /out/engine-sim/${TARGETARCH}/ /
USER 65532:65532
EXPOSE 8000
ENTRYPOINT ["/engine-sim"]
CMD ["--listen=:8000"]

# The last one, which a build without a target makes.
FROM scratch AS envoy-harmony
ARG TARGETARCH
ARG VERSION
ARG COMMIT
ARG COMMIT_DATE
LABEL org.opencontainers.image.title="envoy-harmony" \
      org.opencontainers.image.description="An Envoy filter that lets any OpenAI client use any engine that serves gpt-oss" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT" \
      org.opencontainers.image.created="$COMMIT_DATE" \
      org.opencontainers.image.source="https://github.com/envoy-harmony/envoy-harmony" \
      org.opencontainers.image.documentation="https://github.com/envoy-harmony/envoy-harmony/tree/main/docs" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /out/envoy-harmony/${TARGETARCH}/ /
USER 65532:65532
EXPOSE 9002 9003
ENTRYPOINT ["/envoy-harmony"]
CMD ["serve", "--config", "/etc/envoy-harmony/config.yaml"]
