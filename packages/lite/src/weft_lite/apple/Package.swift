// swift-tools-version:5.5
import PackageDescription

let package = Package(
    name: "WeftLite",
    platforms: [.iOS(.v12), .macOS(.v11)],
    products: [.library(name: "WeftLite", targets: ["WeftLite"])],
    targets: [
        .binaryTarget(name: "CWeftLite", path: "CWeftLite.xcframework"),
        .target(name: "WeftLite", dependencies: ["CWeftLite"]),
    ]
)
