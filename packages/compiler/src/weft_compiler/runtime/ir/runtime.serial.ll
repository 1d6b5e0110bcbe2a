; runtime.c by `hatch run golden:runtime`: clang 22.1.8, sources e2d1e5f1d3e35c2e

@weft_layout = constant [33 x i64] [i64 64, i64 0, i64 8, i64 16, i64 72, i64 8, i64 16, i64 24, i64 32, i64 56, i64 64, i64 16, i64 32, i64 0, i64 8, i64 8, i64 16, i64 24, i64 96, i64 0, i64 8, i64 16, i64 24, i64 32, i64 40, i64 48, i64 56, i64 64, i64 72, i64 80, i64 88, i64 16, i64 -65536], align 16

define i32 @weft_parallel_for(ptr %0, ptr %1, i64 %2, i64 %3, i64 %4, i64 %5) nounwind {
  %7 = tail call i32 %0(ptr %1, i64 0, i64 0, i64 %2) nounwind
  ret i32 %7
}

define void @weft_begin_program(i64 %0) nounwind {
  ret void
}

define void @weft_end_program() nounwind {
  ret void
}

define void @weft_reset_threads() nounwind {
  ret void
}

define void @weft_stop_threads() nounwind {
  ret void
}

define ptr @weft_claim_arena(ptr captures(ret: address, provenance) %0, i64 %1) nounwind {
  br label %3

3:
  %4 = phi i64 [ 0, %2 ], [ %20, %19 ]
  %5 = getelementptr inbounds nuw i8, ptr %0, i64 %4
  %6 = load atomic i64, ptr %5 monotonic, align 64
  %7 = icmp eq i64 %6, 0
  br i1 %7, label %8, label %19

8:
  %9 = getelementptr inbounds nuw i8, ptr %5, i64 16
  %10 = load atomic i64, ptr %9 monotonic, align 16
  %11 = icmp ult i64 %10, %1
  br i1 %11, label %19, label %12

12:
  %13 = atomicrmw xchg ptr %5, i64 1 acquire, align 64
  %14 = icmp eq i64 %13, 0
  br i1 %14, label %15, label %19

15:
  %16 = load atomic i64, ptr %9 monotonic, align 16
  %17 = icmp ult i64 %16, %1
  br i1 %17, label %18, label %22

18:
  store atomic i64 0, ptr %5 release, align 64
  br label %19

19:
  %20 = add nuw nsw i64 %4, 64
  %21 = icmp samesign ult i64 %4, 960
  br i1 %21, label %3, label %22

22:
  %23 = phi ptr [ %5, %15 ], [ null, %19 ]
  ret ptr %23
}

define void @weft_release_arena(ptr %0) nounwind {
  store atomic i64 0, ptr %0 release, align 64
  ret void
}

define i64 @weft_replace_arena(ptr %0, ptr %1, i64 %2) nounwind {
  %4 = atomicrmw xchg ptr %0, i64 1 acquire, align 64
  %5 = icmp eq i64 %4, 0
  br i1 %5, label %6, label %9

6:
  %7 = getelementptr inbounds nuw i8, ptr %0, i64 8
  store ptr %1, ptr %7, align 8
  %8 = getelementptr inbounds nuw i8, ptr %0, i64 16
  store atomic i64 %2, ptr %8 monotonic, align 16
  store atomic i64 0, ptr %0 release, align 64
  br label %9

9:
  %10 = phi i64 [ 1, %6 ], [ 0, %3 ]
  ret i64 %10
}

define ptr @weft_enter(ptr %0, ptr %1, i64 %2) nounwind {
  %4 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %5 = load ptr, ptr %4, align 8
  %6 = getelementptr inbounds nuw i8, ptr %5, i64 8
  %7 = load i64, ptr %6, align 8
  %8 = icmp eq i64 %2, %7
  br i1 %8, label %12, label %9

9:
  %10 = getelementptr inbounds nuw i8, ptr %5, i64 72
  %11 = load ptr, ptr %10, align 8
  tail call void @Py_IncRef(ptr %11) nounwind
  br label %192

12:
  %13 = getelementptr inbounds nuw i8, ptr %5, i64 88
  %14 = load i64, ptr %13, align 8
  %15 = shl i64 %14, 3
  %16 = alloca i8, i64 %15, align 16
  %17 = icmp sgt i64 %14, 0
  br i1 %17, label %18, label %98

18:
  %19 = getelementptr inbounds nuw i8, ptr %5, i64 96
  %20 = getelementptr inbounds nuw i8, ptr %5, i64 48
  br label %21

21:
  %22 = phi ptr [ %1, %18 ], [ %92, %90 ]
  %23 = phi ptr [ %19, %18 ], [ %91, %90 ]
  %24 = phi i64 [ 0, %18 ], [ %93, %90 ]
  %25 = getelementptr inbounds nuw i8, ptr %23, i64 32
  %26 = load ptr, ptr %23, align 8
  %27 = icmp eq ptr %26, null
  br i1 %27, label %28, label %31

28:
  %29 = getelementptr inbounds nuw i8, ptr %23, i64 8
  %30 = load ptr, ptr %29, align 8
  br label %85

31:
  %32 = getelementptr inbounds nuw i8, ptr %23, i64 16
  %33 = load i64, ptr %32, align 8
  %34 = shl nsw i64 %33, 3
  %35 = getelementptr inbounds i8, ptr %25, i64 %34
  %36 = getelementptr inbounds nuw i8, ptr %22, i64 8
  %37 = load ptr, ptr %22, align 8
  %38 = load ptr, ptr %20, align 8
  %39 = getelementptr inbounds nuw i8, ptr %37, i64 8
  %40 = load ptr, ptr %39, align 8
  %41 = icmp eq ptr %40, %38
  br i1 %41, label %46, label %42

42:
  %43 = getelementptr inbounds nuw i8, ptr %23, i64 24
  %44 = load ptr, ptr %43, align 8
  %45 = icmp eq ptr %40, %44
  br i1 %45, label %78, label %95

46:
  %47 = getelementptr inbounds nuw i8, ptr %37, i64 56
  %48 = load ptr, ptr %47, align 8
  %49 = icmp eq ptr %48, %26
  br i1 %49, label %50, label %95

50:
  %51 = getelementptr inbounds nuw i8, ptr %37, i64 64
  %52 = load i32, ptr %51, align 8
  %53 = sext i32 %52 to i64
  %54 = getelementptr inbounds nuw i8, ptr %23, i64 8
  %55 = load i64, ptr %54, align 8
  %56 = and i64 %55, %53
  %57 = icmp eq i64 %56, %55
  br i1 %57, label %58, label %95

58:
  %59 = getelementptr inbounds nuw i8, ptr %37, i64 24
  %60 = load i32, ptr %59, align 8
  %61 = sext i32 %60 to i64
  %62 = icmp eq i64 %33, %61
  br i1 %62, label %63, label %95

63:
  %64 = icmp sgt i32 %60, 0
  br i1 %64, label %65, label %80

65:
  %66 = getelementptr inbounds nuw i8, ptr %37, i64 32
  %67 = load ptr, ptr %66, align 8
  br label %71

68:
  %69 = add nuw nsw i64 %72, 1
  %70 = icmp eq i64 %69, %33
  br i1 %70, label %80, label %71

71:
  %72 = phi i64 [ 0, %65 ], [ %69, %68 ]
  %73 = getelementptr inbounds nuw i64, ptr %67, i64 %72
  %74 = load i64, ptr %73, align 8
  %75 = getelementptr inbounds nuw i64, ptr %25, i64 %72
  %76 = load i64, ptr %75, align 8
  %77 = icmp eq i64 %74, %76
  br i1 %77, label %68, label %95

78:
  %79 = getelementptr inbounds nuw i8, ptr %37, i64 16
  br label %85

80:
  %81 = getelementptr inbounds nuw i8, ptr %37, i64 16
  %82 = load ptr, ptr %81, align 8
  %83 = getelementptr inbounds nuw ptr, ptr %16, i64 %24
  store ptr %82, ptr %83, align 8
  %84 = icmp eq ptr %82, null
  br i1 %84, label %95, label %90

85:
  %86 = phi ptr [ %30, %28 ], [ %79, %78 ]
  %87 = phi ptr [ %25, %28 ], [ %35, %78 ]
  %88 = phi ptr [ %22, %28 ], [ %36, %78 ]
  %89 = getelementptr inbounds nuw ptr, ptr %16, i64 %24
  store ptr %86, ptr %89, align 8
  br label %90

90:
  %91 = phi ptr [ %35, %80 ], [ %87, %85 ]
  %92 = phi ptr [ %36, %80 ], [ %88, %85 ]
  %93 = add nuw nsw i64 %24, 1
  %94 = icmp slt i64 %93, %14
  br i1 %94, label %21, label %98

95:
  %96 = getelementptr inbounds nuw i8, ptr %5, i64 72
  %97 = load ptr, ptr %96, align 8
  tail call void @Py_IncRef(ptr %97) nounwind
  br label %192

98:
  %99 = getelementptr inbounds nuw i8, ptr %5, i64 24
  %100 = load i64, ptr %99, align 8
  %101 = icmp eq i64 %100, 0
  br i1 %101, label %102, label %134

102:
  %103 = getelementptr inbounds nuw i8, ptr %5, i64 40
  %104 = load i64, ptr %103, align 8
  %105 = icmp eq i64 %104, 0
  br i1 %105, label %106, label %115

106:
  %107 = load ptr, ptr %5, align 8
  %108 = getelementptr inbounds nuw i8, ptr %5, i64 56
  %109 = load ptr, ptr %108, align 8
  %110 = getelementptr inbounds nuw i8, ptr %5, i64 64
  %111 = load ptr, ptr %110, align 8
  %112 = getelementptr inbounds nuw i8, ptr %5, i64 32
  %113 = load i64, ptr %112, align 8
  %114 = call i32 %107(ptr %16, ptr null, ptr %109, ptr %111, i64 %113) nounwind
  br label %125

115:
  %116 = tail call ptr @PyEval_SaveThread() nounwind
  %117 = getelementptr inbounds nuw i8, ptr %5, i64 32
  %118 = load ptr, ptr %5, align 8
  %119 = getelementptr inbounds nuw i8, ptr %5, i64 56
  %120 = load ptr, ptr %119, align 8
  %121 = getelementptr inbounds nuw i8, ptr %5, i64 64
  %122 = load ptr, ptr %121, align 8
  %123 = load i64, ptr %117, align 8
  %124 = call i32 %118(ptr %16, ptr null, ptr %120, ptr %122, i64 %123) nounwind
  call void @PyEval_RestoreThread(ptr %116) nounwind
  br label %125

125:
  %126 = phi i32 [ %124, %115 ], [ %114, %106 ]
  %127 = icmp eq i32 %126, 0
  br i1 %127, label %131, label %128

128:
  %129 = sext i32 %126 to i64
  %130 = call ptr @PyLong_FromLongLong(i64 %129) nounwind
  br label %192

131:
  %132 = getelementptr inbounds nuw i8, ptr %5, i64 80
  %133 = load ptr, ptr %132, align 8
  call void @Py_IncRef(ptr %133) nounwind
  br label %192

134:
  %135 = getelementptr inbounds nuw i8, ptr %5, i64 16
  %136 = load ptr, ptr %135, align 8
  br label %137

137:
  %138 = phi i64 [ 0, %134 ], [ %154, %153 ]
  %139 = getelementptr inbounds nuw i8, ptr %136, i64 %138
  %140 = load atomic i64, ptr %139 monotonic, align 64
  %141 = icmp eq i64 %140, 0
  br i1 %141, label %142, label %153

142:
  %143 = getelementptr inbounds nuw i8, ptr %139, i64 16
  %144 = load atomic i64, ptr %143 monotonic, align 16
  %145 = icmp ult i64 %144, %100
  br i1 %145, label %153, label %146

146:
  %147 = atomicrmw xchg ptr %139, i64 1 acquire, align 64
  %148 = icmp eq i64 %147, 0
  br i1 %148, label %149, label %153

149:
  %150 = load atomic i64, ptr %143 monotonic, align 16
  %151 = icmp ult i64 %150, %100
  br i1 %151, label %152, label %158

152:
  store atomic i64 0, ptr %139 release, align 64
  br label %153

153:
  %154 = add nuw nsw i64 %138, 64
  %155 = icmp samesign ult i64 %138, 960
  br i1 %155, label %137, label %156

156:
  %157 = tail call ptr @PyLong_FromLongLong(i64 -65536) nounwind
  br label %192

158:
  %159 = getelementptr inbounds nuw i8, ptr %139, i64 8
  %160 = load ptr, ptr %159, align 8
  %161 = getelementptr inbounds nuw i8, ptr %5, i64 40
  %162 = load i64, ptr %161, align 8
  %163 = icmp eq i64 %162, 0
  br i1 %163, label %164, label %173

164:
  %165 = load ptr, ptr %5, align 8
  %166 = getelementptr inbounds nuw i8, ptr %5, i64 56
  %167 = load ptr, ptr %166, align 8
  %168 = getelementptr inbounds nuw i8, ptr %5, i64 64
  %169 = load ptr, ptr %168, align 8
  %170 = getelementptr inbounds nuw i8, ptr %5, i64 32
  %171 = load i64, ptr %170, align 8
  %172 = call i32 %165(ptr %16, ptr %160, ptr %167, ptr %169, i64 %171) nounwind
  br label %183

173:
  %174 = tail call ptr @PyEval_SaveThread() nounwind
  %175 = getelementptr inbounds nuw i8, ptr %5, i64 32
  %176 = load ptr, ptr %5, align 8
  %177 = getelementptr inbounds nuw i8, ptr %5, i64 56
  %178 = load ptr, ptr %177, align 8
  %179 = getelementptr inbounds nuw i8, ptr %5, i64 64
  %180 = load ptr, ptr %179, align 8
  %181 = load i64, ptr %175, align 8
  %182 = call i32 %176(ptr %16, ptr %160, ptr %178, ptr %180, i64 %181) nounwind
  call void @PyEval_RestoreThread(ptr %174) nounwind
  br label %183

183:
  %184 = phi i32 [ %182, %173 ], [ %172, %164 ]
  store atomic i64 0, ptr %139 release, align 64
  %185 = icmp eq i32 %184, 0
  br i1 %185, label %189, label %186

186:
  %187 = sext i32 %184 to i64
  %188 = call ptr @PyLong_FromLongLong(i64 %187) nounwind
  br label %192

189:
  %190 = getelementptr inbounds nuw i8, ptr %5, i64 80
  %191 = load ptr, ptr %190, align 8
  call void @Py_IncRef(ptr %191) nounwind
  br label %192

192:
  %193 = phi ptr [ %11, %9 ], [ %133, %131 ], [ %97, %95 ], [ %130, %128 ], [ %157, %156 ], [ %188, %186 ], [ %191, %189 ]
  ret ptr %193
}

declare ptr @PyLong_FromLongLong(i64)

define i32 @weft_run_sequence(ptr %0, ptr %1, ptr %2, ptr %3, ptr %4, i64 %5) nounwind {
  %7 = icmp eq ptr %4, null
  br i1 %7, label %8, label %71

8:
  %9 = getelementptr inbounds nuw i8, ptr %0, i64 40
  %10 = load i64, ptr %9, align 8
  %11 = shl i64 %10, 3
  %12 = alloca i8, i64 %11, align 16
  %13 = load ptr, ptr %0, align 8
  %14 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %15 = load i64, ptr %14, align 8
  %16 = shl nsw i64 %15, 3
  %17 = getelementptr inbounds i8, ptr %13, i64 %16
  %18 = icmp sgt i64 %15, 0
  br i1 %18, label %19, label %144

19:
  %20 = getelementptr inbounds nuw i8, ptr %0, i64 32
  %21 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %22 = getelementptr inbounds nuw i8, ptr %0, i64 16
  br label %23

23:
  %24 = phi ptr [ %13, %19 ], [ %69, %66 ]
  %25 = getelementptr inbounds nuw i8, ptr %24, i64 24
  %26 = load i64, ptr %25, align 8
  %27 = icmp sgt i64 %26, 0
  br i1 %27, label %28, label %30

28:
  %29 = getelementptr inbounds nuw i8, ptr %24, i64 32
  br label %40

30:
  %31 = load ptr, ptr %22, align 8
  %32 = load i64, ptr %24, align 8
  %33 = getelementptr inbounds ptr, ptr %31, i64 %32
  %34 = load ptr, ptr %33, align 8
  %35 = getelementptr inbounds nuw i8, ptr %24, i64 16
  %36 = load i64, ptr %35, align 8
  %37 = getelementptr inbounds i8, ptr %2, i64 %36
  %38 = call i32 %34(ptr %12, ptr %37, ptr %3, ptr null, i64 %5) nounwind
  %39 = icmp eq i32 %38, 0
  br i1 %39, label %66, label %64

40:
  %41 = phi i64 [ 0, %28 ], [ %62, %59 ]
  %42 = getelementptr inbounds nuw i64, ptr %29, i64 %41
  %43 = load i64, ptr %42, align 8
  %44 = xor i64 %43, -1
  %45 = icmp sgt i64 %43, -1
  br i1 %45, label %46, label %48

46:
  %47 = getelementptr inbounds nuw i8, ptr %2, i64 %43
  br label %59

48:
  %49 = load i64, ptr %20, align 8
  %50 = icmp sgt i64 %49, %44
  br i1 %50, label %51, label %54

51:
  %52 = getelementptr inbounds nuw ptr, ptr %1, i64 %44
  %53 = load ptr, ptr %52, align 8
  br label %59

54:
  %55 = load ptr, ptr %21, align 8
  %56 = sub nsw i64 %44, %49
  %57 = getelementptr inbounds nuw ptr, ptr %55, i64 %56
  %58 = load ptr, ptr %57, align 8
  br label %59

59:
  %60 = phi ptr [ %47, %46 ], [ %53, %51 ], [ %58, %54 ]
  %61 = getelementptr inbounds nuw ptr, ptr %12, i64 %41
  store ptr %60, ptr %61, align 8
  %62 = add nuw nsw i64 %41, 1
  %63 = icmp slt i64 %62, %26
  br i1 %63, label %40, label %30

64:
  %65 = icmp sgt i32 %38, 0
  br i1 %65, label %137, label %144

66:
  %67 = getelementptr inbounds nuw i8, ptr %24, i64 32
  %68 = load i64, ptr %25, align 8
  %69 = getelementptr inbounds i64, ptr %67, i64 %68
  %70 = icmp ult ptr %69, %17
  br i1 %70, label %23, label %144

71:
  %72 = getelementptr inbounds nuw i8, ptr %4, i64 8
  store i64 1, ptr %72, align 8
  %73 = getelementptr inbounds nuw i8, ptr %0, i64 40
  %74 = load i64, ptr %73, align 8
  %75 = shl i64 %74, 3
  %76 = alloca i8, i64 %75, align 16
  %77 = load ptr, ptr %0, align 8
  %78 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %79 = load i64, ptr %78, align 8
  %80 = shl nsw i64 %79, 3
  %81 = getelementptr inbounds i8, ptr %77, i64 %80
  %82 = icmp sgt i64 %79, 0
  br i1 %82, label %83, label %144

83:
  %84 = getelementptr inbounds nuw i8, ptr %0, i64 32
  %85 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %86 = getelementptr inbounds nuw i8, ptr %0, i64 16
  br label %87

87:
  %88 = phi ptr [ %77, %83 ], [ %135, %132 ]
  %89 = getelementptr inbounds nuw i8, ptr %88, i64 24
  %90 = load i64, ptr %89, align 8
  %91 = icmp sgt i64 %90, 0
  br i1 %91, label %92, label %118

92:
  %93 = getelementptr inbounds nuw i8, ptr %88, i64 32
  br label %94

94:
  %95 = phi i64 [ 0, %92 ], [ %116, %113 ]
  %96 = getelementptr inbounds nuw i64, ptr %93, i64 %95
  %97 = load i64, ptr %96, align 8
  %98 = xor i64 %97, -1
  %99 = icmp sgt i64 %97, -1
  br i1 %99, label %100, label %102

100:
  %101 = getelementptr inbounds nuw i8, ptr %2, i64 %97
  br label %113

102:
  %103 = load i64, ptr %84, align 8
  %104 = icmp sgt i64 %103, %98
  br i1 %104, label %105, label %108

105:
  %106 = getelementptr inbounds nuw ptr, ptr %1, i64 %98
  %107 = load ptr, ptr %106, align 8
  br label %113

108:
  %109 = load ptr, ptr %85, align 8
  %110 = sub nsw i64 %98, %103
  %111 = getelementptr inbounds nuw ptr, ptr %109, i64 %110
  %112 = load ptr, ptr %111, align 8
  br label %113

113:
  %114 = phi ptr [ %101, %100 ], [ %107, %105 ], [ %112, %108 ]
  %115 = getelementptr inbounds nuw ptr, ptr %76, i64 %95
  store ptr %114, ptr %115, align 8
  %116 = add nuw nsw i64 %95, 1
  %117 = icmp slt i64 %116, %90
  br i1 %117, label %94, label %118

118:
  %119 = load ptr, ptr %86, align 8
  %120 = load i64, ptr %88, align 8
  %121 = getelementptr inbounds ptr, ptr %119, i64 %120
  %122 = load ptr, ptr %121, align 8
  %123 = getelementptr inbounds nuw i8, ptr %88, i64 16
  %124 = load i64, ptr %123, align 8
  %125 = getelementptr inbounds i8, ptr %2, i64 %124
  %126 = call i32 %122(ptr %76, ptr %125, ptr %3, ptr null, i64 %5) nounwind
  %127 = load i64, ptr %72, align 8
  %128 = add nsw i64 %127, 1
  store i64 %128, ptr %72, align 8
  %129 = icmp eq i32 %126, 0
  br i1 %129, label %132, label %130

130:
  %131 = icmp sgt i32 %126, 0
  br i1 %131, label %137, label %144

132:
  %133 = getelementptr inbounds nuw i8, ptr %88, i64 32
  %134 = load i64, ptr %89, align 8
  %135 = getelementptr inbounds i64, ptr %133, i64 %134
  %136 = icmp ult ptr %135, %81
  br i1 %136, label %87, label %144

137:
  %138 = phi ptr [ %24, %64 ], [ %88, %130 ]
  %139 = phi i32 [ %38, %64 ], [ %126, %130 ]
  %140 = getelementptr inbounds nuw i8, ptr %138, i64 8
  %141 = load i64, ptr %140, align 8
  %142 = trunc i64 %141 to i32
  %143 = add nsw i32 %139, %142
  br label %144

144:
  %145 = phi i32 [ %126, %130 ], [ %143, %137 ], [ 0, %8 ], [ %38, %64 ], [ 0, %66 ], [ 0, %71 ], [ 0, %132 ]
  ret i32 %145
}

declare void @Py_IncRef(ptr)

declare ptr @PyEval_SaveThread()

declare void @PyEval_RestoreThread(ptr)
